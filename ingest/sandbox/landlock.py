"""Landlock: gives up access to files, TCP and signals to other processes. Needs no privileges, only a kernel that
supports it.

The system calls have the same numbers on every architecture; glibc has no functions for them.
"""

import ctypes

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION = 1
_PR_SET_NO_NEW_PRIVS = 38
# Rights by ABI version: bits of files, of TCP, and of scopes (abstract sockets and signals), from linux/landlock.h.
_FILES = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_FILES = 16
_NET_SINCE, _NET = 4, 0b11
_SCOPES_SINCE, _SCOPES = 6, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


def give_up_all() -> bool:
    """Forbid opening, creating, renaming and removing files, TCP connections, and signalling or tracing other
    processes.

    Returns whether the kernel enforces it; older kernels enforce a part.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1 or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    rules = _Ruleset(
        files=(1 << _FILES.get(version, _NEWEST_FILES)) - 1,
        net=_NET if version >= _NET_SINCE else 0,
        scopes=_SCOPES if version >= _SCOPES_SINCE else 0,
    )
    size = (
        8 if version < _NET_SINCE else 16 if version < _SCOPES_SINCE else 24
    )  # bytes that this kernel knows of _Ruleset
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    return ruleset >= 0 and bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
