"""Training data for a writer: chunks of a collection, or of files that need not be ingested, and known questions."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.known_questions import read_questions
from bench.writer.samples import Sample
from ingest.local import find_files
from ingest.parts import IngestParts
from ingest.split import split
from ragkv.chunk import Chunk, prompt_text
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.documents.indexed import DatabaseSource
from ragkv.service.parts import Parts
from ragkv.tokenizer import Tokenizer


def chunks_of_collection(
    name: str, database: Database, source: DatabaseSource, default_collection: CollectionRef
) -> list[Chunk]:
    """Chunks of the collection's documents that have KV. Raises NotFound for a collection that does not exist."""
    ref = collection_ref(default_collection.tenant_id, name, database)
    return source.ready_chunks(ref.tenant_id, ref.collection_id)


def chunks_of_files(
    paths: Sequence[Path], parts: Parts, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Chunk]:
    """Chunks of files, and of the files in folders, as ingestion splits them. `progress` is told files done and in all.

    Raises Rejected, naming the file, for one that cannot be read: a training corpus is not silently smaller.
    """
    files = list(find_files(paths))
    chunks: list[Chunk] = []
    with closing(IngestParts(parts).parser) as parser:
        for done, file in enumerate(files):
            progress(done, len(files))
            with file.open("rb") as body:
                parsed = parser.parse(file.name, body)
            chunks += split(str(file), parsed, parts.tokenizer, parts.settings.chunk_tokens)
    progress(len(files), len(files))
    return chunks


def known_of_file(path: Path, tokenizer: "Tokenizer") -> list[Sample]:
    """A sample of each known question in a file, over its own passages. Raises Rejected for what is none."""
    return [
        Sample(question.chunks(tokenizer), ((question.text, question.answers[0]),)) for question in read_questions(path)
    ]


def cut(chunk: Chunk, max_tokens: int, tokenizer: Tokenizer) -> Chunk:
    """The chunk's first tokens, and the text that they stand for: nothing is asked about what is left out."""
    if len(chunk.token_ids) <= max_tokens:
        return chunk
    whole = prompt_text(chunk.title, chunk.text)
    _, offsets = tokenizer.encode_with_offsets(whole)
    end = max(0, offsets[max_tokens - 1][1] - whole.rindex(chunk.text))
    return replace(chunk, text=chunk.text[:end], token_ids=chunk.token_ids[:max_tokens])
