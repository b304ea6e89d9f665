"""Syncs of data sources alongside ingestion, in separate threads: a slow disk or object store delays no document."""

import threading

from ragkv.service.data_sources.syncing import SyncTally, sync_next
from ragkv.service.parts import Parts
from workers.repeating import repeat

INTERVAL_S = 3.0
THREADS = 2
"""A data source with very many files leaves a thread to those of others."""


class DataSources:
    """Threads that sync what is due. Several workers may do so at once."""

    def __init__(self, parts: Parts, interval_s: float = INTERVAL_S) -> None:
        self._parts = parts
        self._interval_s = interval_s
        self._stop = threading.Event()

    def start(self) -> None:
        for number in range(THREADS):
            threading.Thread(target=self._run, name=f"data-sources-{number}", daemon=True).start()

    def stop(self) -> None:
        """A sync under way ends at its next file, and another worker goes on with it."""
        self._stop.set()

    def _run(self) -> None:
        repeat(self._sync, self._stop, self._interval_s, "data sources")

    def _sync(self) -> bool:
        return (
            sync_next(self._parts.intake, self._parts.removal, self._parts.worker_counters, self._goes_on) is not None
        )

    def _goes_on(self, tally: SyncTally) -> bool:
        return not self._stop.is_set()
