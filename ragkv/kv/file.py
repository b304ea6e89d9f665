"""One KV file: the keys, values and Q-Cache of one chunk, with a checksum."""

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ragkv.disk import sync
from ragkv.errors import Corrupt, Unsupported
from ragkv.kv.layout import LAYOUT_VERSION, Layout

QCACHE_BLOCK = 16  # tokens per stored mean key; the last block of a chunk may be shorter
PARTIAL = ".partial"
"""How the name of a file ends that is still being written."""

_QCACHE = ("initial", "local", "mean_keys")
_QCACHE_ITEM = 4  # bytes of a float32
_TENSORS = ("keys", "values", *_QCACHE)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@dataclass(frozen=True, slots=True)
class ChunkKV:
    """Keys, values and Q-Cache of one chunk, computed behind the prefix.

    keys, values: [layers, tokens, kv_heads, head_dim] in the layout's dtype; keys carry no rotation.
    initial, local: [q_layers, q_heads, head_dim] float32, the mean un-rotated query of the chunk's first and of its
    last tokens (the Q-Cache). mean_keys: [blocks, q_layers, kv_heads, head_dim] float32, per QCACHE_BLOCK tokens.
    """

    keys: torch.Tensor
    values: torch.Tensor
    initial: torch.Tensor
    local: torch.Tensor
    mean_keys: torch.Tensor

    @property
    def num_tokens(self) -> int:
        return self.keys.shape[1]


@dataclass(frozen=True, slots=True)
class QCache:
    """The small part of a ChunkKV that selectors look at."""

    initial: torch.Tensor
    local: torch.Tensor
    mean_keys: torch.Tensor


@dataclass(frozen=True, slots=True)
class KVShape:
    """The shape of a KV file, from its header.

    Keys and values: [layers, tokens, kv_heads, head_dim]. The Q-Cache: two query vectors (initial and local) for each
    of `q_layers` and `q_heads`, and the mean keys of `q_blocks` blocks of tokens.
    """

    layers: int
    tokens: int
    kv_heads: int
    head_dim: int
    dtype: str
    q_layers: int
    q_heads: int
    q_blocks: int
    q_bytes: int


def write_kv(path: Path, kv: ChunkKV) -> int:
    """Write a KV file, named by its key, so that it is either whole or not there. Returns its size in bytes.

    Raises OSError.
    """
    tensors = {name: getattr(kv, name).contiguous().cpu() for name in _TENSORS}
    metadata = {"version": str(LAYOUT_VERSION), "key": path.stem} | {
        name: _checksum(tensor) for name, tensor in tensors.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        _save(tensors, partial, metadata)
        partial.chmod(0o600)
        sync(partial)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    sync(path.parent)
    return path.stat().st_size


def _save(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def read_kv(path: Path, layout: Layout) -> ChunkKV:
    """Map a KV file into memory and check it.

    Raises Corrupt for a file that is truncated, damaged or another key's, Unsupported for one of another layout, and
    OSError (of which FileNotFoundError is one) for a file that cannot be opened now: that says nothing about its
    content.
    """
    kv = ChunkKV(**_read(path, _TENSORS))
    tokens = kv.keys.shape[1] if kv.keys.dim() == 4 else -1  # noqa: PLR2004 - the four axes of `keys`
    expected = (layout.layers, tokens, layout.kv_heads, layout.head_dim)
    for name in ("keys", "values"):
        tensor = getattr(kv, name)
        if tuple(tensor.shape) != expected or tensor.dtype != layout.dtype:
            raise Unsupported(f"{path.name}: {name} are {tuple(tensor.shape)} {tensor.dtype}, not of the served model")
    return kv


def read_qcache(path: Path) -> QCache:
    """The Q-Cache alone: a small part of the file is read and checked. Raises like `read_kv`."""
    return QCache(**_read(path, _QCACHE))


def read_shape(path: Path) -> KVShape:
    """Shape of a file's KV. Its tensors are neither read nor checked. Raises like `read_kv`."""
    with _opened(path) as file:
        keys, initial, means = (file.get_slice(name) for name in ("keys", "initial", "mean_keys"))
        layers, tokens, kv_heads, head_dim = keys.get_shape()
        q_layers, q_heads, _ = initial.get_shape()
        q_blocks = means.get_shape()[0]
        dtype = str(keys.get_dtype())
    q_bytes = _QCACHE_ITEM * head_dim * q_layers * (2 * q_heads + q_blocks * kv_heads)
    return KVShape(layers, tokens, kv_heads, head_dim, dtype, q_layers, q_heads, q_blocks, q_bytes)


def _read(path: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    with _opened(path) as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in names}
    for name, tensor in tensors.items():
        if metadata.get(name) != _checksum(tensor):
            raise Corrupt(f"{path.name}: the checksum of its {name} does not match")
    return tensors


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, of this version. What goes wrong inside is raised as `read_kv` says."""
    path.stat()  # a missing file is FileNotFoundError, whatever safetensors makes of it
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("version") != str(LAYOUT_VERSION):
                raise Unsupported(f"{path.name}: another version of ragkv wrote it")
            if metadata.get("key") != path.stem:
                raise Corrupt(f"{path.name}: it was written under another key")
            yield file
    except (SafetensorError, ValueError) as error:
        raise Corrupt(f"{path.name}: {error}") from None
    except RuntimeError as error:  # torch could not map it: no descriptors, no memory
        raise OSError(str(error)) from None


def _checksum(tensor: torch.Tensor) -> str:
    digest = xxhash.xxh3_128(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
