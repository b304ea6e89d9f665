"""Every file found by words in it: `python -m bench.measure.search FOLDER`, a Markdown table by the ends of the names.

Each file is read as an upload is and all are in one collection. Then words of each are searched for: of a scan the
transcription in `bench.measure.ocr`, of another file those in the middle of what was read of it. A passage is the
file's, or holds the same words, as several files of a folder may have the same text.
"""

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.measure.hostile_files import files_in, print_by_suffix
from bench.measure.ocr import TRUTH
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.kv.rule import KVWhen
from ragkv.models import model_folder
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.chunk_statements import CHUNK_KEYS, chunks_of, to_chunk
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import CACHE
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import Client, client_of, upload

NUM_WORDS = 10
TOP_K = 5


@contextmanager
def service_without_kv() -> Iterator[tuple[Client, IngestParts]]:
    """A client of a service over an empty data folder, which reads documents and keeps no KV of them."""
    with ExitStack() as stack:
        settings = Settings(
            data_dir=Path(stack.enter_context(tempfile.TemporaryDirectory())),
            model=str(model_folder(Settings(data_dir=CACHE))),
            kv_when=KVWhen.NEVER,
            requests_per_minute=0,
            tenant_requests_per_minute=0,
        )
        redis_server = EmbeddedRedis(settings)
        redis_server.start()
        stack.callback(redis_server.stop)
        parts = Parts(settings, EchoEngine(settings))
        parts.prepare()
        stack.callback(parts.close)
        yield stack.enter_context(client_of(parts)), IngestParts(parts)


def measure(paths: list[Path], client: Client, ingest: IngestParts) -> int:
    """Print the table. Returns the number of files that were read and not found."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    searched: dict[Path, tuple[str, str]] = {}
    misses: list[str] = []
    for number, path in enumerate(paths, start=1):
        counts[path.suffix.lower()]["tried"] += 1
        document_id: str = upload(client, path.read_bytes(), path.name).json()["id"]
        ingest_document(document_id, ingest)
        shown = client.get(f"/v1/documents/{document_id}").json()
        if shown["status"] == "failed":
            misses.append(f"{path.name}: not read: {shown['error']}")
        else:
            searched[path] = document_id, words_of(path, document_id, ingest.parts.database)
        print(f"read {number} of {len(paths)}", end="\r", file=sys.stderr, flush=True)
    names = {document_id: path.name for path, (document_id, _) in searched.items()}
    for path, (document_id, words) in searched.items():
        rank, first = rank_of(document_id, words, client)
        counts[path.suffix.lower()].update({"read": 1, "first": rank == 1, "among 5": rank is not None})
        misses += (
            [] if rank == 1 else [f"{path.name}: rank {rank or f'above {TOP_K}'} behind {names[first]} for {words!r}"]
        )
    print("| format | tried | read | found first | among the first 5 |\n|---|---|---|---|---|")
    print_by_suffix(counts, ("tried", "read", "first", "among 5"))
    print("", *(f"- {line}" for line in misses), sep="\n")
    total = sum(counts.values(), Counter())
    return total["read"] - total["among 5"]


def words_of(path: Path, document_id: str, database: Database) -> str:
    """Consecutive words that a reader of the file sees in the middle of it."""
    if path.name in TRUTH:
        words = TRUTH[path.name].split()
    else:
        with database.reading() as session:
            chunks = [to_chunk(row) for row in session.scalars(chunks_of(document_id).order_by(*CHUNK_KEYS))]
        words = chunks[len(chunks) // 2].text.split()
    start = max(0, (len(words) - NUM_WORDS) // 2)
    return " ".join(words[start : start + NUM_WORDS])


def rank_of(document_id: str, words: str, client: Client) -> tuple[int | None, str]:
    """The place of the first passage of the document, or with the same words, None if it is not among TOP_K; and the
    document that came first."""
    found = client.post("/v1/search", json={"question": words, "top_k": TOP_K}).raise_for_status().json()["passages"]
    ranks = (
        rank
        for rank, passage in enumerate(found, start=1)
        if passage["document_id"] == document_id or words in " ".join(passage["text"].split())
    )
    return next(ranks, None), found[0]["document_id"]


def main(folder: Path) -> int:
    with service_without_kv() as (client, ingest):
        return measure(sorted(files_in(folder), key=lambda path: path.stat().st_size), client, ingest) and 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
