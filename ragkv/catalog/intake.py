"""What a file is accepted with."""

from collections.abc import Callable
from dataclasses import dataclass

from ragkv.db.database import Database
from ragkv.files import FileStore
from ragkv.queue import Queue
from ragkv.settings import Settings


@dataclass(frozen=True, slots=True)
class Intake:
    """Where accepted files go, within the limits of the settings. fingerprint: see `Parts.index_fingerprint`; models
    are read for it when it is first needed."""

    database: Database
    files: FileStore
    settings: Settings
    queue: Queue
    fingerprint: Callable[[], str]

    @property
    def index_fingerprint(self) -> str:
        return self.fingerprint()
