"""Share of a file that the kernel holds in memory: its page cache is the store's host tier."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_MEMORY = 1
"""The bit of `mincore`'s answer that counts."""


def is_resident(path: Path) -> bool:
    """Whether reading the file touches no disk; False where it is not there or the kernel does not tell."""
    try:
        return 0 < path.stat().st_size == resident_bytes(path)
    except OSError:
        return False


def resident_bytes(path: Path) -> int:
    """Bytes of the file in the page cache, in whole pages; 0 if there is no such file. Reads none of it.

    Raises OSError where the kernel does not tell.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return 0
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) as mapped:  # ctypes wants it writable; never written
            start = ctypes.c_char.from_buffer(mapped)
            failed = _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages)
            del start  # a mapping that is pointed at cannot be closed
    finally:
        os.close(descriptor)
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return min(int((np.ctypeslib.as_array(pages) & _IN_MEMORY).sum()) * mmap.PAGESIZE, size)
