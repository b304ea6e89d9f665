"""The processes of one vLLM, and what they leave behind when killed: shared memory and sockets."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

_SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - where the kernel shows it


@dataclass(frozen=True, slots=True)
class Family:
    """Child processes, their descendants and the files that all would leave, noted while they live."""

    children: tuple[BaseProcess, ...] = ()
    descendants: tuple[psutil.Process, ...] = ()
    files: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, children: Iterable[BaseProcess]) -> "Family":
        children = tuple(children)
        pids = [child.pid for child in children if child.pid is not None]
        descendants: list[psutil.Process] = []
        for pid in pids:
            with suppress(psutil.NoSuchProcess):
                descendants += psutil.Process(pid).children(recursive=True)
        files = [path for pid in [*pids, *(descendant.pid for descendant in descendants)] for path in _files(pid)]
        return cls(children, tuple(descendants), frozenset(files))

    def kill(self) -> None:
        """Kill all that live, wait until they are gone, and remove their files as far as that is allowed: a process may
        map another user's memory."""
        for child in self.children:
            child.kill()
        for descendant in self.descendants:
            with suppress(psutil.NoSuchProcess):  # known by pid and starting time: a pid may have a new owner
                descendant.kill()
        for child in self.children:
            child.join()
        psutil.wait_procs(self.descendants)
        for path in self.files:
            with suppress(OSError):
                path.unlink()


def _files(pid: int) -> Iterator[Path]:
    """Shared memory that a process maps, and sockets that it listens on in the temporary folder.

    POSIX shared memory has no folders: what lies in one below /dev/shm is somebody's file, a model's weights perhaps.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            _, _, path = line.partition(_SHARED_MEMORY)
            if path and "/" not in path and not path.endswith(" (deleted)"):
                yield Path(_SHARED_MEMORY + path)
    with suppress(OSError, psutil.Error):
        for connection in psutil.Process(pid).net_connections("unix"):
            if connection.laddr and Path(connection.laddr).parent == Path(tempfile.gettempdir()):
                yield Path(connection.laddr)
