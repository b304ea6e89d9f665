"""Training data for a writer: chunks of a collection, or of files that need not be ingested, and known questions; and
the chunks' division into sets for training, validation and evaluation.

Chunks that lie near each other share contexts, so they are divided in neighbourhoods. What a training takes is recorded
beside its adapter: later calls may give the documents in another order, some of them, or more.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.known_questions import read_questions
from bench.writer.samples import Sample
from ingest.local import find_files
from ingest.parts import IngestParts
from ingest.split import split
from ragkv.chunk import Chunk, prompt_text
from ragkv.errors import Rejected
from ragkv.files_io import read_json, replace_file
from ragkv.ids import batched
from ragkv.prefill.writer import TRAINED_ON
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.documents.indexed import DatabaseSource
from ragkv.service.parts import Parts
from ragkv.tokenizer import Tokenizer

NEIGHBOURS = 16
"""Chunks that lie one behind the other in a collection and may share a context."""
LEAST_NEIGHBOURHOODS = 6
LEAST_HELD_OUT = 2

Neighbourhoods = list[list[Chunk]]


@dataclass(frozen=True, slots=True)
class Division:
    """Neighbourhoods, none of them in two parts."""

    training: Neighbourhoods
    validation: Neighbourhoods
    evaluation: Neighbourhoods


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


def divide(chunks: Sequence[Chunk], trained_on: AbstractSet[str]) -> Division:
    """Hold out the last fifth of the chunks: a third of it to validate on, the rest to evaluate on.

    chunks: of many documents, those of one document in a row. trained_on: digests of those that a training took, which
    are never held out; neither is a chunk that the training part holds too. Raises Rejected where too few are left.
    """
    if len(chunks) < LEAST_NEIGHBOURHOODS * NEIGHBOURS:
        raise Rejected(
            f"there are {len(chunks)} chunks; training and evaluation need {LEAST_NEIGHBOURHOODS * NEIGHBOURS} or more: "
            "give more documents"
        )
    num_held_out = max(LEAST_HELD_OUT, len(chunks) // NEIGHBOURS // 5)
    unseen = _neighbourhoods([chunk for chunk in chunks if digest_of(chunk) not in trained_on])
    trained = trained_on | _digests(unseen[:-num_held_out])
    training = _neighbourhoods([chunk for chunk in chunks if digest_of(chunk) in trained])
    held_out = _neighbourhoods([chunk for chunk in chunks if digest_of(chunk) not in trained])
    if len(held_out) < LEAST_HELD_OUT:
        raise Rejected(
            f"the writer was trained on most of these {len(chunks)} chunks, or they repeat each other: too little is "
            "left to evaluate it on; give other documents as well"
        )
    num_validation = max(1, len(held_out) // 3)
    return Division(training, validation=held_out[:num_validation], evaluation=held_out[num_validation:])


def digest_of(chunk: Chunk) -> str:
    """Names a chunk by what a prompt holds of it."""
    return hashlib.blake2b(repr(chunk.token_ids).encode(), digest_size=8).hexdigest()


def read_record(folder: Path) -> frozenset[str]:
    """Digests of the chunks that the writer in a folder was trained on; none where that was not recorded. Raises
    Rejected for a file that cannot be read."""
    return frozenset(read_json(folder / TRAINED_ON, list[str]) or ())


def write_record(folder: Path, training: Iterable[Sequence[Chunk]]) -> None:
    """Record these chunks beside those that are recorded already."""
    replace_file(folder / TRAINED_ON, msgspec.json.encode(sorted(_digests(training) | read_record(folder))))


def _digests(part: Iterable[Sequence[Chunk]]) -> set[str]:
    return {digest_of(chunk) for near in part for chunk in near}


def _neighbourhoods(chunks: Sequence[Chunk]) -> Neighbourhoods:
    """A last one of less than half the size is part of the one before."""
    near = [list(several) for several in batched(chunks, NEIGHBOURS)]
    if len(near) > 1 and len(near[-1]) < NEIGHBOURS // 2:
        near[-2:] = [near[-2] + near[-1]]
    return near
