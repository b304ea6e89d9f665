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

from ingest.sandbox.messages import Limits

_PR_SET_PDEATHSIG = 1
_NOBODY = 65534
# Landlock's system calls have the same numbers on every architecture; glibc has no functions for them.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_LANDLOCK_VERSION = 1
_PR_SET_NO_NEW_PRIVS = 38
# Rights by ABI version: bits of files, of TCP, and of scopes (abstract sockets and signals), from linux/landlock.h.
_FILES = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_FILES = 16
_NET_SINCE, _NET = 4, 0b11
_SCOPES_SINCE, _SCOPES = 6, 0b11


def confine(limits: Limits) -> None:
    """Apply all limits to this process, for good. Descriptors that are open stay usable."""
    with suppress(OSError):  # the kernel kills this process first when the machine runs out of memory
        Path("/proc/self/oom_score_adj").write_text("1000")
    loaded = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # the parsers themselves
    memory = loaded + (limits.memory_mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    _give_up_all()
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


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


def _give_up_all() -> None:
    """Landlock: forbid opening, creating, renaming and removing files, TCP connections, and signalling or tracing other
    processes. Older kernels enforce a part, or nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < 1 or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return
    rules = _Ruleset(
        files=(1 << _FILES.get(version, _NEWEST_FILES)) - 1,
        net=_NET if version >= _NET_SINCE else 0,
        scopes=_SCOPES if version >= _SCOPES_SINCE else 0,
    )
    # Bytes of _Ruleset that this kernel knows.
    size = 8 if version < _NET_SINCE else 16 if version < _SCOPES_SINCE else 24
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset >= 0:
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
