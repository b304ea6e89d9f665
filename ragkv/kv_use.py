"""The last use of KV: noted after every answer, written now and then."""

import logging
import threading
import time
from collections.abc import Iterable

from ragkv.batched import batched
from ragkv.clock import utc_now
from ragkv.db.database import Database
from ragkv.db.kv_entries import used
from ragkv.errors import Unavailable

log = logging.getLogger(__name__)

WRITE_EVERY_S = 30.0


class KVUse:
    """Collects chunks whose KV was used. One per process; what a killed process had not written is lost."""

    def __init__(self, database: Database, write_every_s: float = WRITE_EVERY_S) -> None:
        self._database = database
        self._write_every_s = write_every_s
        self._lock = threading.Lock()
        self._chunk_ids: set[str] = set()
        self._written = time.monotonic()

    def note(self, chunk_ids: Iterable[str]) -> None:
        """Blocks for one write every WRITE_EVERY_S seconds. Raises Unavailable when the database is away then."""
        with self._lock:
            self._chunk_ids.update(chunk_ids)
            is_due = time.monotonic() - self._written >= self._write_every_s
        if is_due:
            self.write()

    def write(self) -> None:
        """Write what was noted since the last time."""
        with self._lock:
            chunk_ids, self._chunk_ids = list(self._chunk_ids), set()
            self._written = time.monotonic()
        for some in batched(chunk_ids):
            with self._database.writing() as session:
                session.execute(used(some, utc_now()))

    def close(self) -> None:
        try:
            self.write()
        except Unavailable as error:
            log.warning("when KV was last used is not known to the end: %s", error)
