"""Parts that only ingestion needs, made on first use."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ingest.sandbox.messages import Limits, OCRLimits
from ingest.sandbox.parser import Parser
from ingest.turn import BatchSize, KVShare
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import KVEngine
from ragkv.errors import Unavailable
from ragkv.file_types import no_ocr
from ragkv.observe import traces
from ragkv.prefill.precompute import Prefiller
from ragkv.prefill.writer import note_written
from ragkv.service.documents.lease import Lease
from ragkv.service.observe.worker_counters import WorkerCounters
from ragkv.service.parts import Parts
from ragkv.settings import Settings


def parser_of(settings: Settings) -> Parser:
    """A parser within the limits of the settings, with OCR where it is installed and switched on."""
    ocr = no_ocr(wanted=settings.ocr) or OCRLimits(settings.ocr_pages, settings.ocr_seconds)
    return Parser(Limits(settings.parse_seconds, settings.parse_memory_mib), ocr, keeps_hidden=settings.read_hidden)


@dataclass
class IngestParts:
    """One per process. Work is counted if the counters have a Redis.

    `engine`: computes KV; the parts' own by default, and `run` runs work on its event loop. `kept` is called when KV
    was kept, `attached` with the id of each document that is an attachment, which waits. `owed`: leases to release,
    each with its reason, as soon as the database is available again.
    """

    parts: Parts
    counters: WorkerCounters = field(default_factory=WorkerCounters)
    engine: KVEngine | None = None
    kept: Callable[[], None] = lambda: None
    attached: Callable[[str], None] = lambda document_id: None
    owed: list[tuple[Lease, str]] = field(default_factory=list)
    run: Callable[[Coroutine[Any, Any, None]], None] = run_in_background
    kv_share: KVShare = field(default_factory=KVShare)
    batch_size: BatchSize = field(default_factory=BatchSize)

    @cached_property
    def prefiller(self) -> Prefiller:
        """The engine that computes KV, asked from this thread. Raises Unavailable where the writer's folder holds
        another one than KV is named by."""
        folder, writer = self.parts.settings.writer_dir, self.parts.writer_fingerprint
        if writer and self.parts.fingerprints.adapter(folder) != writer:
            raise Unavailable("another writer was put into use: restart the workers, so that they use it")
        note_written(folder, writer)
        return Prefiller(self.engine or self.parts.engine, self.parts.prompts, self.run)

    @cached_property
    def parser(self) -> Parser:
        return parser_of(self.parts.settings)

    def load_models(self) -> None:
        """Load the models that most documents need."""
        self.parts.encoder  # noqa: B018 - loads it
        self.parts.tokenizer  # noqa: B018 - loads it
        self.prefiller  # noqa: B018 - looks for the writer

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run the block as one stage of an ingestion: timed, and a span."""
        with traces.span(name), self.counters.stage(name):
            yield
