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

from ragkv.kv.file import StoredKV, part_of
from ragkv.kv.layout import Layout
from ragkv.kv.pieces import FilePart, Identity
from ragkv.kv.quantise import Packed
from ragkv.kv.store import KVStore

log = logging.getLogger(__name__)

REMEMBERED = 50_000
"""Keys of which is known that they were used once, and keys whose files were checked."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

KV = TypeVar("KV", bound=StoredKV | Packed)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Copy:
    kv: StoredKV
    num_bytes: int
    file: Identity


class HostCache:
    """A KV store read through memory: copies in a bounded one, and the kernel's page cache.

    A copy serves as long as its file is there and unchanged, so code that deletes or replaces a file need not know of
    it. Copies are made in a thread of their own: no question waits for one. A file that was checked once is not checked
    again while it is unchanged and all of it is in the page cache: what comes from the disk is checked.
    """

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
        self._checked = OrderedDict[str, Identity]()
        self._copier = ThreadPoolExecutor(1, "host tier")

    @property
    def num_bytes(self) -> int:
        """Bytes of all copies."""
        return self._bytes

    def get(self, key: str, layout: Layout, *, in_memory: bool = False) -> StoredKV | None:
        """Like `KVStore.open`, with the tier's heads alone.

        layout: the files', with all heads. in_memory: the method of this name said so. A file that was checked before
        and is unchanged is not checked again then.
        """
        if (kv := self._copy_of(key)) is not None:
            return kv
        kv = self._store.open(key, layout, self._checked.get(key) if in_memory else None)
        if kv is None:
            return None
        part = part_of(kv)
        assert isinstance(part, FilePart), "what is opened is not in memory"
        file = part.file.identity
        if self._heads is not None:
            kv = kv.of_heads(self._heads)
        with self._lock:
            _remember(self._checked, key, file)
            # What is used once, of late, would only push out what is used often.
            is_used_again = key in self._used_once
            if is_used_again:
                del self._used_once[key]
            elif self._capacity:
                _remember(self._used_once, key, None)
        if is_used_again:
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

    def _keep(self, key: str, kv: StoredKV, file: Identity) -> None:
        num_bytes = bytes_of_copy(kv, pinned=self._pinned)
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
        if copy := self._copies.pop(key, None):
            self._bytes -= copy.num_bytes


def _remember(by_key: OrderedDict[str, T], key: str, value: T) -> None:
    """Set it as the latest, and forget the earliest of too many."""
    by_key[key] = value
    by_key.move_to_end(key)
    if len(by_key) > REMEMBERED:
        by_key.popitem(last=False)


def bytes_of_copy(kv: StoredKV | Packed, *, pinned: bool) -> int:
    """Memory that a copy of this KV takes. PyTorch pins a power of two of bytes for each tensor."""
    num_bytes = 0
    for part in (getattr(kv, field.name) for field in fields(kv)):
        if isinstance(part, Packed):
            num_bytes += bytes_of_copy(part, pinned=pinned)
        elif part is not None and part.nbytes:
            num_bytes += 1 << (part.nbytes - 1).bit_length() if pinned else part.nbytes
    return num_bytes


def _bits_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's bits in a type that NumPy has, with the same strides."""
    return tensor.view(_INTEGERS[tensor.itemsize]).numpy()
