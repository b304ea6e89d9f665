"""The stores and limits that accepted files need."""

from collections.abc import Callable

from ragkv.service.base.database import Database
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.queue import Queue
from ragkv.settings import Settings


class Intake:
    """The stores that accepted files go into, within the limits of the settings."""

    def __init__(
        self, database: Database, files: FileStore, settings: Settings, queue: Queue, fingerprint: Callable[[], str]
    ) -> None:
        """fingerprint: see `Parts.index_fingerprint`; models are read for it when it is first needed."""
        self.database = database
        self.files = files
        self.settings = settings
        self.queue = queue
        self._fingerprint = fingerprint

    @property
    def index_fingerprint(self) -> str:
        return self._fingerprint()
