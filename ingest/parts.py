"""Parts that only ingestion needs: the model under Transformers, loaded once and on first use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

from transformers.utils import logging

from ingest.sandbox.messages import Limits, OCRLimits
from ingest.sandbox.parser import Parser
from ingest.turn import BatchSize, KVShare
from ragkv.errors import Unavailable
from ragkv.file_types import no_ocr
from ragkv.kv.prefilling import Prefilling
from ragkv.observe import traces
from ragkv.prefill.compressor import Compressor, load_watcher
from ragkv.prefill.precompute import Announcer
from ragkv.prefill.prefill import Prefiller
from ragkv.prefill.writer import note_written
from ragkv.service.documents.lease import Lease
from ragkv.service.observe.worker_counters import WorkerCounters
from ragkv.service.parts import Parts
from ragkv.settings import Settings


def ocr_limits(settings: Settings) -> OCRLimits | str:
    """Limits on documents that are read by OCR, or what to do where there is none."""
    return no_ocr(settings) or OCRLimits(settings.ocr_pages, settings.ocr_seconds)


@dataclass
class IngestParts:
    """One per process. Work is counted if the counters have a Redis.

    `kept` is called when KV was kept, `attached` with the id of each document that is an attachment, which waits.
    `owed`: leases to release, each with its reason, as soon as the database is available again.
    """

    parts: Parts
    counters: WorkerCounters = field(default_factory=WorkerCounters)
    kept: Callable[[], None] = lambda: None
    attached: Callable[[str], None] = lambda document_id: None
    owed: list[tuple[Lease, str]] = field(default_factory=list)
    kv_share: KVShare = field(default_factory=KVShare)
    batch_size: BatchSize = field(default_factory=BatchSize)

    @cached_property
    def prefiller(self) -> Prefiller:
        """The model with its writer. Raises Unavailable where the folders hold another one than KV is named by."""
        folder, writer = self.parts.settings.writer_dir, self.parts.writer_fingerprint
        self._check_folders()
        logging.disable_progress_bar()
        note_written(folder, writer)
        prefiller = Prefiller.load(self.parts.model_folder, self.parts.layout, folder if writer else None)
        self._check_folders()  # they may have changed while they were read
        return prefiller

    def _check_folders(self) -> None:
        parts, fingerprints = self.parts, self.parts.fingerprints
        is_same_writer = not parts.writer_fingerprint or (
            fingerprints.adapter(parts.settings.writer_dir) == parts.writer_fingerprint
        )
        if fingerprints.weights(parts.model_folder) != parts.model_fingerprint or not is_same_writer:
            raise Unavailable("another model or writer was put into use: restart the workers, so that they use it")

    @cached_property
    def compressor(self) -> Compressor:
        """Leaves tokens out of chunks' KV. With a method that looks, the model is in memory once more."""
        parts = self.parts
        return Compressor(parts.layout, partial(load_watcher, parts.model_folder, parts.layout, parts.prompts))

    @cached_property
    def announcer(self) -> Announcer:
        """Tells questions which KV is being computed."""
        return Announcer(Prefilling(self.parts.settings.kv_dir), len(self.parts.prompts.prefix_ids))

    @cached_property
    def parser(self) -> Parser:
        settings = self.parts.settings
        limits = Limits(settings.parse_seconds, settings.parse_memory_mib)
        return Parser(limits, ocr_limits(settings), keeps_hidden=settings.read_hidden)

    def load_models(self) -> None:
        """Load the models that most documents need."""
        self.parts.encoder  # noqa: B018 - loads it
        self.parts.tokenizer  # noqa: B018 - loads it
        self.prefiller  # noqa: B018 - loads it

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run the block as one stage of an ingestion: timed, and a span."""
        with traces.span(name), self.counters.stage(name):
            yield
