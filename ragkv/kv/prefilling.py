"""KV that is being computed: a worker announces which KV it computes and when it expects to finish; questions look it
up.

An announcement is a file in the folder of KV, locked by the process that wrote it for as long as it computes. The lock
goes with the process, however that ends: the announcement of a dead worker is none.
"""

import fcntl
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ragkv.files_io import make_folder
from ragkv.ids import new_id

FOLDER = "prefilling"
"""Below the folder of KV. KV files lie in folders of two letters."""
LEAST_LEFT = 0.1
"""Share of a batch's time that is left of it at least, until it is there: an estimate is not a promise."""
LONGEST = 2.0
"""Times its estimate after which a batch is not expected any more."""
MAX_BYTES = 1 << 20
MAX_READS = 10
"""Times that announcements are read until they hold still."""
UNFINISHED = "."
"""Opens the name of a file that is being written."""

log = logging.getLogger(__name__)


class AnnouncedBatch(msgspec.Struct, frozen=True, array_like=True):
    """KV that is written together. began, takes_s: when its prefill begins, in seconds since the epoch, and how long it
    takes."""

    keys: tuple[str, ...]
    began: float
    takes_s: float

    def ready_in_s(self, wall_time: float) -> float | None:
        """Seconds until it is there as estimated; None for one that should have been long ago."""
        passed = wall_time - self.began
        if passed > LONGEST * self.takes_s:
            return None
        return max(self.takes_s - passed, LEAST_LEFT * self.takes_s)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A file, and the descriptor that locks it; None for one that could not be written."""

    path: Path
    descriptor: int | None

    def withdraw(self) -> None:
        if self.descriptor is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The announcements of a folder of KV, which any process may write and read."""

    folder: Path
    """The folder of KV."""

    def announce(self, batches: Sequence[AnnouncedBatch]) -> "Announcement":
        """Announce these until it is withdrawn. Raises nothing: a disk that is full announces nothing."""
        path, descriptor = self.folder / FOLDER / new_id(), None
        if not batches:
            return Announcement(path, None)
        unfinished = path.with_name(UNFINISHED + path.name)  # it has its name once it is whole
        try:
            make_folder(path.parent)
            for announcement in self._files():
                with suppress(OSError), announcement.open("rb") as file:
                    if _is_free(file.fileno()):
                        announcement.unlink()
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, msgspec.json.encode(batches))
            unfinished.rename(path)
        except OSError as error:
            log.debug("the prefill under way is not announced: %s", error)
            if descriptor is not None:
                os.close(descriptor)
            return Announcement(path, None)
        return Announcement(path, descriptor)

    def ready_in_s(self) -> dict[str, float]:
        """Seconds until KV that a running process computes is there as estimated, by key.

        A process replaces its announcement by writing the next and then removing the old one: if the files changed
        while they were read, they are read again.
        """
        wall_time_s = time.time()
        files = self._files()
        for _ in range(MAX_READS):
            batches = [batch for path in files if not path.name.startswith(UNFINISHED) for batch in _read(path)]
            previous, files = files, self._files()
            if files == previous:
                break
        expected: dict[str, float] = {}
        for batch in batches:
            seconds = batch.ready_in_s(wall_time_s)
            if seconds is not None:
                expected |= {key: min(seconds, expected.get(key, seconds)) for key in batch.keys}
        return expected

    def any(self) -> bool:
        """Whether any announcement exists, even a stale one; reads one directory."""
        try:
            with os.scandir(self.folder / FOLDER) as files:
                return next(files, None) is not None
        except OSError:
            return False

    def _files(self) -> set[Path]:
        try:
            return set((self.folder / FOLDER).iterdir())
        except OSError:
            return set()


def _read(path: Path) -> list[AnnouncedBatch]:
    """The batches that a running process announces in this file; none if it is damaged, or gone."""
    with suppress(OSError, msgspec.DecodeError), path.open("rb") as file:
        if not _is_free(file.fileno()):
            return msgspec.json.decode(file.read(MAX_BYTES), type=list[AnnouncedBatch])
    return []


def _is_free(descriptor: int) -> bool:
    """Whether no process locks the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
