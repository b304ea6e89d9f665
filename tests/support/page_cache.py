"""What the kernel keeps of files in memory, told to keep it: left alone it may drop any page at any time."""

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np


@contextmanager
def kept(paths: Iterable[Path]) -> Iterator[None]:
    """Files that lie in memory whole, and stay there. Raises OSError where the limit of locked memory is too low."""
    with ExitStack() as mapped:
        for path in paths:
            mapped.enter_context(_locked(path))
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        # Shared and read-only: a private writable mapping would lock copies of the pages.
        start = np.frombuffer(pages, np.uint8)
        failed = ctypes.CDLL(None, use_errno=True).mlock(
            ctypes.c_void_p(start.ctypes.data), ctypes.c_size_t(len(pages))
        )
        del start  # a mapping that is pointed at cannot be closed
        if failed:
            raise OSError(ctypes.get_errno(), f"{os.strerror(ctypes.get_errno())}: {path}")
        yield
