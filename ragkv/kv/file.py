"""One KV file: the keys, values and Q-Cache of one chunk, quantised or not, with a checksum."""

import json
import os
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from ragkv.errors import Corrupt, Unsupported
from ragkv.files_io import make_folder, sync
from ragkv.kv.format import GRIDS, QCACHE_BLOCK, KVFormat
from ragkv.kv.layout import LAYOUT_VERSION, Layout
from ragkv.kv.pieces import FilePart, Identity, OpenFile, copy_part, in_memory, part_of_heads
from ragkv.kv.quantise import Packed, pack_keys, pack_values

PARTIAL = ".partial"
"""How the name of a file ends that is still being written."""

_QCACHE = ("initial", "local", "mean_keys")
_PLAIN = ("keys", "values")
_KEPT = "kept"
_HEADER = struct.Struct("<Q")
"""Before the header of a safetensors file: its length. Offsets in it are counted from its end."""
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8, "U8": torch.uint8}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@dataclass(frozen=True, slots=True)
class PlainKV:
    """Keys, values and Q-Cache of one chunk, computed behind the prefix.

    keys, values: [layers, tokens, kv_heads, head_dim] in the layout's dtype, values of latent attention with a
    head_dim of 0; keys carry no rotation.
    initial, local: [q_layers, q_heads, head_dim] float32, the mean un-rotated query of the chunk's first and of its
    last tokens (the Q-Cache). mean_keys: [blocks, q_layers, kv_heads, head_dim] float32, per QCACHE_BLOCK tokens.
    kept: [tokens] int32, of a compressed chunk: which of its tokens these are, ascending. None: they are all of them.
    Of a file, keys and values are not in memory: what reads them raises OSError if it is not as it was checked.
    """

    keys: torch.Tensor | FilePart
    values: torch.Tensor | FilePart
    initial: torch.Tensor
    local: torch.Tensor
    mean_keys: torch.Tensor
    kept: torch.Tensor | None = None

    @property
    def num_tokens(self) -> int:
        return self.keys.shape[1]

    def copy_into(self, keys: torch.Tensor, values: torch.Tensor, layers: slice, start: int) -> None:
        """Write keys and values of some layers' tokens from `start` on into two [layers, tokens, kv_heads,
        head_dim]."""
        copy_part(self.keys, keys, layers, start)
        copy_part(self.values, values, layers, start)

    def of_heads(self, heads: slice) -> "PlainKV":
        """The keys and values of some KV heads, not copied. The Q-Cache stays whole."""
        return replace(self, keys=part_of_heads(self.keys, heads), values=part_of_heads(self.values, heads))


@dataclass(frozen=True, slots=True)
class PackedKV:
    """A PlainKV whose keys and values are quantised; its Q-Cache is kept in their dtype."""

    keys: Packed
    values: Packed
    initial: torch.Tensor
    local: torch.Tensor
    mean_keys: torch.Tensor
    kept: torch.Tensor | None = None

    @property
    def num_tokens(self) -> int:
        return self.keys.num_tokens

    def copy_into(self, keys: torch.Tensor, values: torch.Tensor, layers: slice, start: int) -> None:
        """Like PlainKV.copy_into."""
        self.keys.unpack_into(keys, layers, start)
        self.values.unpack_into(values, layers, start)

    def of_heads(self, heads: slice) -> "PackedKV":
        """Like PlainKV.of_heads."""
        return replace(self, keys=self.keys.of_heads(heads), values=self.values.of_heads(heads))


StoredKV = PlainKV | PackedKV


def part_of(kv: StoredKV) -> torch.Tensor | FilePart:
    """The keys as they are stored: codes, if they are quantised."""
    return kv.keys.codes if isinstance(kv, PackedKV) else kv.keys


@dataclass(frozen=True, slots=True)
class QCache:
    """The small part of a PlainKV that selectors look at."""

    initial: torch.Tensor
    local: torch.Tensor
    mean_keys: torch.Tensor


@dataclass(frozen=True, slots=True)
class KVShape:
    """The shape of a KV file, from its header.

    Keys and values: [layers, tokens, kv_heads, head_dim]. The Q-Cache: two query vectors (initial and local) for each
    of `q_layers` and `q_heads`, and the mean keys of `q_blocks` blocks of tokens.
    """

    layers: Annotated[int, "Number of layers."]
    tokens: Annotated[int, "Number of tokens."]
    kv_heads: Annotated[int, "Number of key-value heads."]
    head_dim: Annotated[int, "Size of a head."]
    dtype: Annotated[str, "Data type of keys and values as they are used."]
    q_layers: Annotated[int, "Number of layers in the Q-Cache."]
    q_heads: Annotated[int, "Number of query heads in the Q-Cache."]
    q_blocks: Annotated[int, "Number of token blocks with mean keys in the Q-Cache."]
    q_bytes: Annotated[int, "Size of the Q-Cache in bytes."]
    format: Annotated[KVFormat, "Format they are stored in."]


def name_of_kept(offsets: Sequence[int]) -> str:
    """Names which tokens of a chunk have KV: 32 hex digits, empty for all of them, which is no offsets."""
    return xxhash.xxh3_128(np.asarray(offsets, dtype="<u4").tobytes()).hexdigest() if offsets else ""


def block_means(keys: torch.Tensor, q_layers: range) -> torch.Tensor:
    """Mean keys of a chunk's blocks, from its un-rotated keys [layers, tokens, kv_heads, head_dim]; see
    PlainKV.mean_keys."""
    q_keys = keys[q_layers.start : q_layers.stop]
    return torch.stack([block.float().mean(1) for block in torch.split(q_keys, QCACHE_BLOCK, dim=1)])


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of any safetensors file, by name. Raises OSError, and Corrupt for a file that is none."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise Corrupt(f"{path}: {error}") from None


def left_of(kv: PlainKV, offsets: Sequence[int], layout: Layout) -> PlainKV:
    """KV of the tokens at `offsets`, ascending, of a chunk. Their keys are un-rotated: they may stand at any positions.

    Initial and local vectors stay the whole chunk's; mean keys are those of blocks of what is left.
    """
    assert isinstance(kv.keys, torch.Tensor), "of KV in memory"
    assert isinstance(kv.values, torch.Tensor), "of KV in memory"
    rows = torch.tensor(offsets, device=kv.keys.device)
    keys = kv.keys[:, rows]
    means = block_means(keys, layout.q_layers)
    return PlainKV(keys, kv.values[:, rows], kv.initial, kv.local, means, torch.tensor(offsets, dtype=torch.int32))


@dataclass(frozen=True, slots=True)
class KVContent:
    """Content of a KV file, in host memory, once `copied`, from a GPU, has come."""

    tensors: dict[str, torch.Tensor]
    kv_format: KVFormat
    copied: torch.Event | None = None

    @classmethod
    def of(cls, kv: PlainKV, kv_format: KVFormat) -> "KVContent":
        """Quantised, if that is the format, on the device where the KV lies."""
        if kv_format is KVFormat.BF16:
            tensors = {name: getattr(kv, name) for name in (*_PLAIN, *_QCACHE)}
        else:
            grid = GRIDS[kv_format]
            packed = {"keys": pack_keys(in_memory(kv.keys), grid), "values": pack_values(in_memory(kv.values), grid)}
            parts = product(packed.items(), _parts_of(kv_format))
            tensors = {f"{name}.{part}": getattr(quantised, part) for (name, quantised), part in parts}
            tensors |= {name: getattr(kv, name).to(kv.keys.dtype) for name in _QCACHE}
        if kv.kept is not None:
            tensors[_KEPT] = kv.kept
        device = kv.keys.device if isinstance(kv.keys, torch.Tensor) else torch.device("cpu")
        if device.type != "cuda":
            return cls({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, kv_format)
        # A GPU writes into pinned memory by itself, while this thread launches the next forward.
        on_host = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
            for name, tensor in tensors.items()
        }
        copied = torch.Event(device)
        copied.record()
        return cls(on_host, kv_format, copied)


def write_kv(path: Path, kv: PlainKV, kv_format: KVFormat = KVFormat.BF16) -> int:
    """Write a KV file like `write_content`."""
    return write_content(path, KVContent.of(kv, kv_format))


def write_content(path: Path, content: KVContent) -> int:
    """Write a KV file, named by its key, so that it is either whole or not there. Returns its size in bytes. Computes
    nothing with PyTorch: any thread may do it.

    Raises OSError.
    """
    if content.copied is not None:
        content.copied.synchronize()
    tensors, kv_format = content.tensors, content.kv_format
    metadata = {"version": str(LAYOUT_VERSION), "key": path.stem} | {
        name: _checksum(tensor) for name, tensor in tensors.items()
    }
    if kv_format is not KVFormat.BF16:
        metadata["format"] = kv_format
    with _placed(path) as partial:
        try:
            save_file(tensors, partial, metadata)
        except SafetensorError as error:
            _raise_os_error(error, partial)
            raise
        sync(partial)
    sync(path.parent)
    return path.stat().st_size


def receive_kv(path: Path, fill: Callable[[Path], object]) -> None:
    """Keep the file that `fill` writes as that of its key, once all of it is read and checked.

    It need not last: there is another copy. Raises like `read_kv`, and whatever `fill` raises.
    """
    with _placed(path) as partial:
        fill(partial)
        load_kv(partial, path.stem)


@contextmanager
def _placed(path: Path) -> Iterator[Path]:
    """A path to write to in the block, and whose file takes the place of `path` after it, unless anything is raised."""
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        yield partial
        partial.chmod(0o600)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def _parts_of(kv_format: KVFormat) -> tuple[str, ...]:
    """The tensors of packed keys, and of packed values, in a file."""
    return ("codes", "step", "edges") if GRIDS[kv_format].centred else ("codes", "step", "low", "edges")


def _raise_os_error(error: Exception, path: Path) -> None:
    """Raise the OSError that safetensors only tells in words, if there was one."""
    if number := _OS_ERROR.search(str(error)):
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def read_kv(path: Path, layout: Layout, checked: Identity | None = None) -> StoredKV:
    """Check a KV file, all of it. Its keys and values are read as they are asked for, from the file as it was checked.

    checked: a file whose keys and values were checked before. If it is this one, they are not read for that again.

    Raises Corrupt for a file that is truncated, damaged or another key's, Unsupported for one of another layout or
    format, and OSError (of which FileNotFoundError is one) for a file that cannot be read now: that says nothing
    about its content.
    """
    kv = load_kv(path, checked=checked)
    for name, head_dim in zip(_PLAIN, (layout.head_dim, layout.value_dim), strict=True):
        stored = getattr(kv, name)
        shape = tuple(stored.shape)
        tokens = shape[1] if len(shape) == 4 else -1  # noqa: PLR2004 - the four axes of keys and of values
        if shape != (layout.layers, tokens, layout.kv_heads, head_dim) or stored.dtype != layout.dtype:
            raise Unsupported(f"{path.name}: {name} are {shape} {stored.dtype}, which does not fit the served model")
    return kv


def load_kv(path: Path, key: str | None = None, checked: Identity | None = None) -> StoredKV:
    """Like `read_kv`, of whatever layout. key: that of a file that is not named by it."""
    content = OpenFile(path)
    with _opened(path, key or path.stem, content.name) as (file, kv_format):
        offsets = _kept_in(file, path)
        if kv_format is KVFormat.BF16:
            parts = _parts(file, content, _PLAIN, path, checked)
            kv: StoredKV = PlainKV(parts["keys"], parts["values"], **_checked(file, _QCACHE, path), kept=offsets)
        else:
            codes, *scales = _parts_of(kv_format)
            parts = _parts(file, content, [f"{name}.{codes}" for name in _PLAIN], path, checked)
            small = _checked(file, (*(f"{name}.{part}" for name in _PLAIN for part in scales), *_QCACHE), path)
            keys, values = (
                Packed(parts[f"{name}.{codes}"], **{part: small[f"{name}.{part}"] for part in scales})
                for name in _PLAIN
            )
            kv = PackedKV(keys, values, **{name: small[name] for name in _QCACHE}, kept=offsets)
    if offsets is not None and len(offsets) != kv.num_tokens:
        raise Corrupt(f"{path.name}: it lists {len(offsets)} tokens but has KV for {kv.num_tokens}")
    return kv


def _parts(
    file: Any, content: OpenFile, names: Sequence[str], path: Path, checked: Identity | None
) -> dict[str, FilePart]:
    """Tensors of a file, looked through, if it is not the one that was checked before, and left where they are."""
    (length,) = _HEADER.unpack(content.read_bytes(0, _HEADER.size))
    index = json.loads(content.read_bytes(_HEADER.size, _HEADER.size + length))
    metadata, parts = file.metadata(), {}
    for name in names:
        stored = file.get_slice(name)
        start, end = (_HEADER.size + length + offset for offset in index[name]["data_offsets"])
        part = FilePart(content, start, tuple(stored.get_shape()), _DTYPES.get(stored.get_dtype(), torch.uint8))
        if content.identity != checked and metadata.get(name) != _digest(
            part.dtype, part.shape, content.blocks(start, end)
        ):
            raise Corrupt(f"{path.name}: the checksum of its {name} does not match")
        parts[name] = part
    return parts


def read_qcache(path: Path) -> QCache:
    """The Q-Cache alone: a small part of the file is read and checked. Raises like `read_kv`."""
    with _opened(path, path.stem) as (file, _):
        return QCache(**{name: tensor.float() for name, tensor in _checked(file, _QCACHE, path).items()})


def read_kept(path: Path) -> tuple[int, ...]:
    """Places in their chunk of the tokens that a file has KV of, ascending; none for all of them. Raises like
    `read_kv`."""
    with _opened(path, path.stem) as (file, _):
        offsets = _kept_in(file, path)
    return () if offsets is None else tuple(offsets.tolist())


def _kept_in(file: Any, path: Path) -> torch.Tensor | None:
    if _KEPT not in file.keys():  # noqa: SIM118 - a file of safetensors has no `in`
        return None
    offsets = _checked(file, (_KEPT,), path)[_KEPT]
    if (
        offsets.ndim != 1
        or offsets.dtype != torch.int32
        or not len(offsets)
        or offsets[0] < 0
        or bool((offsets.diff() < 1).any())
    ):
        raise Corrupt(f"{path.name}: its tokens are not in ascending order")
    return offsets


def read_shape(path: Path) -> KVShape:
    """Shape of a file's KV. Its tensors are neither read nor checked. Raises like `read_kv`."""
    with _opened(path, path.stem) as (file, kv_format):
        plain = kv_format is KVFormat.BF16
        keys = file.get_slice("keys" if plain else "keys.codes")
        values = keys if plain else file.get_slice("keys.edges")
        initial, means = file.get_slice("initial"), file.get_slice("mean_keys")
        layers, tokens, kv_heads, _ = keys.get_shape()
        head_dim = values.get_shape()[-1]
        q_layers, q_heads, _ = initial.get_shape()
        q_blocks = means.get_shape()[0]
        dtype, q_item = str(values.get_dtype()), _DTYPES[str(initial.get_dtype())].itemsize
    q_bytes = q_item * head_dim * q_layers * (2 * q_heads + q_blocks * kv_heads)
    return KVShape(layers, tokens, kv_heads, head_dim, dtype, q_layers, q_heads, q_blocks, q_bytes, kv_format)


def _checked(file: Any, names: Sequence[str], path: Path) -> dict[str, torch.Tensor]:
    metadata = file.metadata()
    tensors = {name: file.get_tensor(name) for name in names}
    for name, tensor in tensors.items():
        if metadata.get(name) != _checksum(tensor):
            raise Corrupt(f"{path.name}: the checksum of its {name} does not match")
    return tensors


@contextmanager
def _opened(path: Path, key: str, opened_as: str | None = None) -> Iterator[tuple[Any, KVFormat]]:
    """The file of a key, of this version, and its format. What goes wrong inside is raised as `read_kv` says.

    opened_as: another path of it."""
    path.stat()  # a missing file is FileNotFoundError, whatever safetensors makes of it
    try:
        with safe_open(opened_as or path, framework="pt", backend="pread") as file:
            metadata = file.metadata() or {}
            if metadata.get("version") != str(LAYOUT_VERSION):
                raise Unsupported(f"{path.name}: another version of ragkv wrote it")
            if metadata.get("key") != key:
                raise Corrupt(f"{path.name}: it was written under another key")
            if metadata.get("format", KVFormat.BF16) not in set(KVFormat):
                raise Unsupported(f"{path.name}: a newer version of ragkv wrote it")
            yield file, KVFormat(metadata.get("format", KVFormat.BF16))
    except (SafetensorError, ValueError) as error:
        _raise_os_error(error, path)
        raise Corrupt(f"{path.name}: {error}") from None
    except RuntimeError as error:  # torch could not map it: no descriptors, no memory
        raise OSError(str(error)) from None


def _checksum(tensor: torch.Tensor) -> str:
    return _digest(tensor.dtype, tensor.shape, [tensor.reshape(-1).view(torch.uint8).numpy().data])


def _digest(dtype: torch.dtype, shape: Sequence[int], content: Iterable[memoryview]) -> str:
    digest = xxhash.xxh3_128(f"{dtype} {tuple(shape)}".encode())
    for block in content:
        digest.update(block)
    return digest.hexdigest()
