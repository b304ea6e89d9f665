"""The host tier: KV that was recently used more than once, copied into memory, where it is checked once and no file
is read."""

import logging
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch

from ragkv.kv.file import StoredKV
from ragkv.kv.layout import Layout
from ragkv.kv.pieces import FilePart
from ragkv.kv.quantise import Packed
from ragkv.kv.store import Identity, KVStore

log = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Keys of which is known that they were used once."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

KV = TypeVar("KV", bound=StoredKV | Packed)


@dataclass(frozen=True, slots=True)
class _Copy:
    kv: StoredKV
    num_bytes: int
    file: Identity


class HostCache:
    """A KV store read through a bounded memory. A copy serves as long as its file is there and unchanged, so code that
    deletes or replaces a file need not know of it. Copies are made in a thread of their own: no question waits for
    one."""

    def __init__(self, store: KVStore, capacity: int, *, heads: slice | None = None, pinned: bool = False) -> None:
        """capacity: bytes, 0 for no copies. heads: the KV heads that are read, if not all. pinned: in memory that a GPU
        reads by itself."""
        self._store = store
        self._capacity = capacity
        self._heads = heads
        self._pinned = pinned
        self._lock = threading.Lock()
        self._copies = OrderedDict[str, _Copy]()
        self._bytes = 0
        self._used_once = OrderedDict[str, None]()
        self._copier = ThreadPoolExecutor(1, "host tier")

    @property
    def num_bytes(self) -> int:
        """Bytes of all copies."""
        return self._bytes

    def get(self, key: str, layout: Layout) -> StoredKV | None:
        """Like `KVStore.open`, with the tier's heads alone. layout: the files', with all heads."""
        if (kv := self._copy_of(key)) is not None:
            return kv
        file = self._store.identity(key)
        kv = self._store.open(key, layout)
        if kv is not None and self._heads is not None:
            kv = kv.of_heads(self._heads)
        if kv is not None and file is not None and self._is_used_again(key):
            self._copier.submit(self._keep, key, kv, file)
        return kv

    def in_memory(self, key: str) -> bool:
        """Whether the KV of `key` lies in host memory, ours or the kernel's, so that `get` reads no disk."""
        return self._copy_of(key) is not None or self._store.in_memory(key)

    def settle(self) -> None:
        """Wait until the copies are made that were begun."""
        self._copier.submit(lambda: None).result()

    def _copy_of(self, key: str) -> StoredKV | None:
        with self._lock:
            if key not in self._copies:
                return None
            self._copies.move_to_end(key)
            copy = self._copies[key]
        if copy.file == self._store.identity(key):
            return copy.kv
        with self._lock:
            self._drop(key)
        return None

    def _is_used_again(self, key: str) -> bool:
        """Whether it was used before, of late. What is used once would only push out what is used often."""
        if not self._capacity:
            return False
        with self._lock:
            if key in self._used_once:
                del self._used_once[key]
                return True
            self._used_once[key] = None
            if len(self._used_once) > REMEMBERED:
                self._used_once.popitem(last=False)
        return False

    def _keep(self, key: str, kv: StoredKV, file: Identity) -> None:
        num_bytes = _bytes_of(kv)
        if num_bytes > self._capacity:
            return
        try:
            copy = _Copy(self._copied(kv), num_bytes, file)
        except (RuntimeError, MemoryError) as error:  # torch's own errors are the former
            log.warning("KV stays on disk alone, there is no room for a copy in memory: %s", error)
            return
        except OSError as error:
            log.warning("KV is not copied into memory: %s", error)
            return
        with self._lock:
            self._drop(key)
            while self._bytes + num_bytes > self._capacity:
                self._drop(next(iter(self._copies)))
            self._copies[key] = copy
            self._bytes += num_bytes

    def _copied(self, kv: KV) -> KV:
        parts: dict[str, Any] = {part.name: self._copied_part(getattr(kv, part.name)) for part in fields(kv)}
        return replace(kv, **parts)

    def _copied_part(self, part: torch.Tensor | FilePart | Packed | None) -> torch.Tensor | Packed | None:
        if part is None or isinstance(part, Packed):
            return part and self._copied(part)
        copy = torch.empty(part.shape, dtype=part.dtype, pin_memory=self._pinned)
        if isinstance(part, FilePart):
            part.read_into(copy, slice(None), 0)
            return copy
        # NumPy's copy has one thread. With torch's own this thread would get a pool of them, and with more threads than
        # cores OpenMP lets those of the model sleep between any two of their loops: measured, its forwards took twice
        # as long from then on.
        np.copyto(_bits_of(copy), _bits_of(part))
        return copy

    def _drop(self, key: str) -> None:
        copy = self._copies.pop(key, None)
        if copy is not None:
            self._bytes -= copy.num_bytes


def _bytes_of(kv: StoredKV | Packed) -> int:
    parts = [getattr(kv, part.name) for part in fields(kv)]
    return sum(_bytes_of(part) if isinstance(part, Packed) else part.nbytes for part in parts if part is not None)


def _bits_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's bits in a type that NumPy has, with the same strides."""
    return tensor.view(_INTEGERS[tensor.itemsize]).numpy()
