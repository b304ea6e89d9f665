"""Tensors of an open file, read piece by piece. They are not mapped: a page of a mapping that its disk cannot give, or
that its file no longer has, ends the process (SIGBUS), where a read raises."""

import errno
import math
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

BLOCK = 2**20
"""Bytes that are looked through at a time: few enough for the processor's cache, many for one call."""
CONVERTED = 4 * BLOCK
"""Bytes that are converted, or sent to a device, at a time, or those of one layer."""

TAKEN_AT_ONCE = 2**15
"""Bytes that CUDA's driver takes over from any memory without waiting for the GPU: up to 64 KiB."""

Identity = tuple[int, int, int]
"""Tells a file from any other that takes its place: inode, time of the last change in nanoseconds, bytes."""


def identity_of(status: os.stat_result) -> Identity:
    """The identity of a file that was looked at."""
    return status.st_ino, status.st_mtime_ns, status.st_size


class OpenFile:
    """A file, open until nothing refers to it. What is read is what was there when it was opened, or OSError."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises OSError."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self.identity = self._identity_now()

    @property
    def name(self) -> str:
        """A path of this very file, whatever takes its place in its folder."""
        return f"/proc/self/fd/{self._descriptor}"

    def read(self, offset: int, outs: Sequence[memoryview]) -> None:
        """Fill these, one after the other, with the bytes from `offset` on. Raises OSError, also for a file that was
        changed since."""
        if os.preadv(self._descriptor, outs, offset) != sum(map(len, outs)):
            for out in outs:
                left = out
                while left:
                    num_bytes = os.preadv(self._descriptor, [left], offset)
                    if not num_bytes:
                        raise self._changed()
                    left, offset = left[num_bytes:], offset + num_bytes
        if self._identity_now() != self.identity:
            raise self._changed()

    def _changed(self) -> OSError:
        return OSError(errno.ESTALE, "the file was changed while it was open", str(self._path))

    def read_bytes(self, start: int, end: int) -> bytes:
        """The bytes [start, end). Raises like `read`."""
        out = bytearray(end - start)
        self.read(start, [memoryview(out)])
        return bytes(out)

    def blocks(self, start: int, end: int) -> Iterator[memoryview]:
        """The bytes [start, end), a block at a time: each is gone when the next is asked for. Raises like `read`."""
        for offset in range(start, end, BLOCK):
            block = _buffer(min(BLOCK, end - offset))
            self.read(offset, [block])
            yield block

    def _identity_now(self) -> Identity:
        return identity_of(os.fstat(self._descriptor))


class _Buffer(threading.local):
    """Memory of each thread's own: fresh pages for every file would cost more than reading it."""

    view = memoryview(b"")


_BUFFER = _Buffer()


def _buffer(num_bytes: int) -> memoryview:
    """So many bytes, until this thread asks again."""
    if len(_BUFFER.view) < num_bytes:
        _BUFFER.view = memoryview(bytearray(max(num_bytes, BLOCK)))
    return _BUFFER.view[:num_bytes]


@dataclass(frozen=True, slots=True)
class FilePart:
    """A tensor of an open file: [layers, tokens, kv_heads, channels], contiguous from byte `start` on. What is indexed
    by layers and tokens is read, into memory of its own. heads: those that are seen, if not all."""

    file: OpenFile
    start: int
    stored: tuple[int, ...]
    dtype: torch.dtype
    heads: slice | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        if self.heads is None:
            return self.stored
        layers, tokens, heads, channels = self.stored
        return layers, tokens, len(range(*self.heads.indices(heads))), channels

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def of_heads(self, heads: slice) -> "FilePart":
        """Some of the heads that are stored."""
        return replace(self, heads=heads)

    def __getitem__(self, index: tuple[slice, slice]) -> torch.Tensor:
        """Read some tokens of some layers. Raises OSError."""
        layers, rows = index
        counts = (len(range(*layers.indices(self.stored[0]))), len(range(*rows.indices(self.stored[1]))))
        out = torch.empty(*counts, *self.shape[2:], dtype=self.dtype)
        self.read_into(out, layers, rows.indices(self.stored[1])[0])
        return out

    def read_into(self, out: torch.Tensor, layers: slice, start: int) -> None:
        """Read some layers' tokens from `start` on into `out`, [layers, tokens, kv_heads, channels], of any dtype on
        any device. Raises OSError."""
        if not out.numel():
            return
        first_layer = layers.indices(self.stored[0])[0]
        if self.heads is None and (out.device.type, out.dtype) == ("cpu", self.dtype) and out[0].is_contiguous():
            self._read(out, first_layer, start)
            return
        num_bytes = out.shape[1] * self._bytes_of(2)
        step = max(1, CONVERTED // max(num_bytes, 1))
        for at in range(0, len(out), step):
            portion = out[at : at + step]
            size = len(portion) * num_bytes
            if out.is_cuda:
                # Pinned, for a copy that the GPU makes while the next are read: PyTorch gives the memory to nobody else
                # before the copy is done.
                staging = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            else:
                staging = torch.frombuffer(_buffer(size), dtype=torch.uint8)
            read = staging.view(self.dtype).view(*portion.shape[:2], *self.stored[2:])
            self._read(read, first_layer + at, start)
            send(read if self.heads is None else read[:, :, self.heads], portion)

    def _read(self, out: torch.Tensor, first_layer: int, start: int) -> None:
        """out: [layers, tokens, all kv_heads, channels] on the CPU, each layer of it contiguous."""
        token, layer = self._bytes_of(2), self._bytes_of(1)
        rows = [row.data for row in out.view(torch.uint8).numpy().reshape(len(out), -1)]
        offset = self.start + first_layer * layer + start * token
        if out.shape[1] == self.stored[1]:
            self.file.read(offset, rows)
            return
        for index, row in enumerate(rows):
            self.file.read(offset + index * layer, [row])

    def _bytes_of(self, axis: int) -> int:
        """Bytes of one element of the axis before this one."""
        return math.prod(self.stored[axis:]) * self.dtype.itemsize


def copy_part(part: torch.Tensor | FilePart, out: torch.Tensor, layers: slice, start: int) -> None:
    """Like FilePart.read_into, of either."""
    if isinstance(part, FilePart):
        part.read_into(out, layers, start)
    else:
        send(part[layers, start : start + out.shape[1]], out)


def send(part: torch.Tensor, out: torch.Tensor) -> None:
    """Copy a host's tensor into one of any dtype on any device. Not blocking: a GPU fetches it by itself, and converts
    it there instead of here."""
    out.copy_(fetchable(part, out.device), non_blocking=out.is_cuda)


def fetchable(part: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A host's tensor where a GPU fetches it by itself: contiguous, in pinned memory. From any other the driver copies
    it in this thread, and waits for all that the GPU has to do before, but for small ones. For a CPU as it is."""
    if device.type != "cuda" or part.nbytes < TAKEN_AT_ONCE or (part.is_contiguous() and part.is_pinned()):
        return part
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part)


def sent(part: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of a host's tensor on a device, of a CPU itself. Nothing waits: a copy that blocks would wait for all that
    the device has to do before it."""
    return fetchable(part, device).to(device, non_blocking=True)


def part_of_heads(part: torch.Tensor | FilePart, heads: slice) -> torch.Tensor | FilePart:
    """Some heads of [layers, tokens, kv_heads, channels], neither copied nor read."""
    return part.of_heads(heads) if isinstance(part, FilePart) else part[:, :, heads]


def in_memory(part: torch.Tensor | FilePart) -> torch.Tensor:
    """The tensor itself, or what is read of a file. Raises OSError."""
    return part[:, :] if isinstance(part, FilePart) else part
