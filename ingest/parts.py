"""What ingestion needs beyond the service's parts: the model under Transformers, loaded once and only if needed."""

from dataclasses import dataclass
from functools import cached_property

from transformers.utils import logging

from ingest.prefill import Prefiller
from ragkv.parts import Parts


@dataclass
class IngestParts:
    """One per process."""

    parts: Parts

    @cached_property
    def prefiller(self) -> Prefiller:
        logging.disable_progress_bar()
        return Prefiller.load(self.parts.model_folder, self.parts.layout)
