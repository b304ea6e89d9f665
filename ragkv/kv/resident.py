"""Files in the page cache of the kernel, which is the store's host tier: how much is there, and bringing them in."""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_MEMORY = 1
"""The bit of `mincore`'s answer that counts."""
_POPULATE_READ = 22
"""MADV_POPULATE_READ, which Linux has since 5.14."""


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


def read_in(path: Path) -> None:
    """Bring all of a file into the page cache, so that a mapping of it may be read.

    Raises OSError for a file that cannot be read, a damaged disk's for one: read through a mapping, such a page ends
    the process (SIGBUS). Before Linux 5.14 it does nothing.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        try:
            pages.madvise(_POPULATE_READ)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
