"""vLLM's core as a fork of a process that has imported vLLM: one that follows another starts ten seconds sooner.

On a CPU vLLM spawns its core, which imports all of vLLM again: more than anything else in the start of a small model.
Here `multiprocessing`'s fork server does it once. It is started like a spawned core, with the same environment, and has
no threads, sockets or locks of the service.
"""

import os
import signal
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess, SpawnContext
from pathlib import Path

from ragkv.threads import end_with_parent

PRELOAD = "ragkv.connector.preload"
_READ_AT_IMPORT = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "TORCH", "PYTORCH_", "VLLM_", "HF_", "TRANSFORMERS_")
"""Beginnings of names of variables that a library may read while it is loaded."""

_read_at_start: dict[str, str] = {}


class _CoreProcess(ForkServerProcess):
    """A process with this one's environment, as a spawned one has."""

    def start(self) -> None:
        self._environment = dict(os.environ)
        try:
            super().start()
        except OSError:  # its socket is gone, which lay with temporary files: another server has its own
            end_server()
            super().start()

    def run(self) -> None:
        # Only what differs: a process's title is written over the environment that it began with, if that is in place.
        for name in os.environ.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update(self._environment.items() - os.environ.items())
        end_with_parent()  # before it has a model: until then it would wait for a killed service for minutes
        super().run()


class _CoreContext(ForkServerContext):
    Process = _CoreProcess


def core_context() -> BaseContext:
    """For vLLM's `get_mp_context`: forks of the fork server, which is started by the first call. Spawned processes if a
    variable that libraries read when they are imported has changed since then."""
    read = {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_IMPORT)}
    if not _read_at_start:
        _read_at_start.update(read)
        context = _CoreContext()
        context.set_forkserver_preload([PRELOAD])
        return context
    return _CoreContext() if read == _read_at_start else SpawnContext()


def end_server() -> None:
    """Kill the fork server: whoever waits for a process from it gets an EOFError. The next core starts another."""
    pid: int | None = getattr(forkserver._forkserver, "_forkserver_pid", None)  # noqa: SLF001 - nothing else names it
    if pid is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # or the next core would be asked of what still dies


def leave_nothing() -> None:
    """In the fork server, when it ends: remove its socket. A service that is killed does not."""
    path = Path(getattr(forkserver._forkserver, "_forkserver_address", ""))  # noqa: SLF001 - as above
    with suppress(OSError):
        path.unlink()
        path.parent.rmdir()
    os._exit(0)  # libraries that vLLM imports complain of themselves, on the terminal, when an interpreter ends
