"""Files in the kernel's page cache: how much of them is cached."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        with _mapped(path) as (address, size):
            pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            if _LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
                raise OSError(number := ctypes.get_errno(), os.strerror(number))
    except FileNotFoundError:
        return 0
    return min(int((np.ctypeslib.as_array(pages) & _IN_MEMORY).sum()) * mmap.PAGESIZE, size)


@contextmanager
def _mapped(path: Path) -> Iterator[tuple[int, int]]:
    """The address and the size of a mapping of the file; both 0 for an empty one."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            yield 0, 0
            return
        # ctypes wants it writable; it is never written.
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as pages:
            start = ctypes.c_char.from_buffer(pages)
            try:
                yield ctypes.addressof(start), size
            finally:
                del start  # a mapping that is pointed at cannot be closed
