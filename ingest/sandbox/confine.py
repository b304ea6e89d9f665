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
    with suppress(OSError):  # the kernel kills this process first when the machine runs out of memory
        Path("/proc/self/oom_score_adj").write_text("1000")
    loaded = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # the parsers themselves
    memory = loaded + (limits.memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    give_up_all()
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        resource.setrlimit(kind, (0, 0))
    if os.geteuid() == 0:  # root ignores process limits and may signal any process
        with suppress(OSError):  # not possible in every container
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which forked it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
