"""Watches the folders of data sources, each in a separate thread: a sync becomes due seconds after a change. Several
workers may watch at once; the schedule continues as well."""

import logging
import threading
import time
from contextlib import suppress

from ragkv.errors import RagKVError
from ragkv.service.base.tenants import tenant_name
from ragkv.service.data_sources.data_sources import WatchedFolder, folder_changed, note_watching, watched_folders
from ragkv.service.data_sources.folder import FolderFiles
from ragkv.service.data_sources.location import location_of
from ragkv.service.data_sources.opening import files_of
from ragkv.service.data_sources.watching import QUIET_MS, watch
from ragkv.service.parts import Parts
from workers.repeating import repeat

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
RETRY_S = 30.0
"""Until a folder that could not be watched is tried again."""
MAX_WATCHED = 50
"""Each takes a thread, and one of the 128 watchers that the kernel gives a user by default. Tenants take turns."""


class Watching:
    """Threads that watch what is to be watched, which is read from the database now and then."""

    def __init__(
        self,
        parts: Parts,
        interval_s: float = INTERVAL_S,
        retry_s: float = RETRY_S,
        quiet_ms: int = QUIET_MS,
        max_watched: int = MAX_WATCHED,
    ) -> None:
        self._parts = parts
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._quiet_ms = quiet_ms
        self._max_watched = max_watched
        self._stop = threading.Event()
        self._watches: dict[WatchedFolder, _Watch] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="watching", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        repeat(self._keep_in_step, self._stop, self._interval_s, "watched folders")
        for folder_watch in self._watches.values():
            folder_watch.stop()

    def _keep_in_step(self) -> bool:
        folders = watched_folders(self._parts.database)
        for folder in self._watches.keys() - set(folders):
            self._watches.pop(folder).stop()
        for number, folder in enumerate(folders):
            refusal = (
                None
                if number < self._max_watched
                else f"the worker already watches {self._max_watched} folders, the most it can"
            )
            folder_watch = self._watches.get(folder)
            if folder_watch is not None:
                if folder_watch.refusal == refusal and not folder_watch.is_over(self._retry_s):
                    continue
                folder_watch.stop()
            self._watches[folder] = _Watch(
                folder, self._parts, self._quiet_ms, refusal, is_again=folder_watch is not None
            )
            self._watches[folder].start()
        return False


class _Watch:
    """One folder, watched until it is stopped or cannot be watched any more; not at all, for the reason of a
    `refusal`."""

    def __init__(
        self, folder: WatchedFolder, parts: Parts, quiet_ms: int, refusal: str | None, *, is_again: bool
    ) -> None:
        self.refusal = refusal
        self._folder = folder
        self._parts = parts
        self._quiet_ms = quiet_ms
        self._is_again = is_again
        self._stop = threading.Event()
        self._ended_at: float | None = None

    def start(self) -> None:
        name = f"watching-{self._folder.data_source_id[:8]}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def is_over(self, since_s: float) -> bool:
        return self._ended_at is not None and time.monotonic() - self._ended_at > since_s

    def _run(self) -> None:
        try:
            if self.refusal is not None:
                self._note(self.refusal)
                return
            location = location_of(self._folder.location)
            files = files_of(location, tenant_name(self._folder.tenant_id, self._parts.database), self._parts.settings)
            assert isinstance(files, FolderFiles), "nothing else is said to be watched"
            watch(files, self._stop, self._changed, self._begun, self._quiet_ms)
        except RagKVError as error:
            self._note(str(error))
        except Exception:
            log.exception("watching %s", self._folder.location)
            self._note("an unexpected error: see the worker's log")
        finally:
            self._ended_at = time.monotonic()

    def _begun(self) -> None:
        """Make a sync due for changes of an unwatched time; after a start of the worker the scheduled sync finds
        them."""
        note_watching(self._folder.data_source_id, None, self._parts.database)
        if self._is_again:
            self._changed()

    def _changed(self) -> None:
        folder_changed(self._folder.data_source_id, self._parts.database)

    def _note(self, error: str) -> None:
        log.warning("%s is not watched: %s", self._folder.location, error)
        with suppress(RagKVError):
            note_watching(self._folder.data_source_id, error, self._parts.database)
