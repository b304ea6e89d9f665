"""Confinement of the process that parses one document. Everything here works without privileges.

With RLIMIT_NOFILE at 0 no descriptor can be made: no file opened, no socket, no pipe, whatever code runs. Memory is
limited as address space (RLIMIT_AS), which also counts what is mapped and never touched: nothing escapes it, and the
parsers reserve nothing in advance.
"""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

from ingest.sandbox.landlock import give_up_all
from ingest.sandbox.messages import Limits

_PR_SET_PDEATHSIG = 1
_NOBODY = 65534


def confine(limits: Limits) -> None:
    """Apply all limits to this process, for good. Descriptors that are open stay usable."""
    _prefer_for_oom_kill()
    _limit_memory(limits.memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    give_up_all()
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        resource.setrlimit(kind, (0, 0))
    _drop_root()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which forked it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _limit_memory(allowed: int) -> None:
    """Limit the address space to `allowed` bytes beyond what the loaded parsers take already."""
    loaded = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (loaded + allowed, loaded + allowed))


def _prefer_for_oom_kill() -> None:
    """Have the kernel kill this process first when the machine runs out of memory."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _drop_root() -> None:
    """Become nobody: root ignores process limits and may signal any process. Not possible in every container."""
    if os.geteuid() == 0:
        with suppress(OSError):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
