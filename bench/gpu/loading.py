"""Loading KV onto the device, one chunk after the other as for one question: from disk, page cache and the host
tier."""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from bench.gpu.corpus import Corpus
from bench.gpu.scale import Scale
from bench.gpu.shapes import Shape
from ragkv.engine.protocol import Batch
from ragkv.errors import Rejected
from ragkv.files_io import is_resident
from ragkv.kv.format import KVFormat
from ragkv.kv.host import HostCache
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import Layout
from ragkv.prefill.precompute import precompute

_RUNS = 3
_GB = 1e9


class LoadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Gigabytes a second, as they are stored and as the bfloat16 that they become; of all milliseconds, those of
    reading and checking."""

    kv_format: KVFormat
    source: str
    tokens: int
    stored_gb_s: float
    bf16_gb_s: float
    ms: float
    read_ms: float


def measure_loading(shape: Shape, folder: Path, scale: Scale) -> list[LoadRow]:
    """Medians of runs that take turns. A disk row is missing where the kernel does not let go of files."""
    corpus, layout = Corpus.of(shape, folder, scale), shape.layout
    chunks = corpus.chunks[: scale.load_tokens // scale.chunk_tokens]
    out = tuple(
        torch.empty(layout.layers, scale.chunk_tokens, layout.kv_heads, layout.head_dim, dtype=layout.dtype, device=scale.device)
        for _ in "kv"
    )  # fmt: skip
    rows = []
    for kv_format in KVFormat:
        keys = replace(corpus.keys, kv_format=kv_format)
        precompute(chunks, keys, _NoPrefiller, corpus.store)
        named = [keys.chunk(chunk.token_ids) for chunk in chunks]
        room = 2 * sum(map(corpus.store.bytes_of, named))  # pinned tensors take powers of two
        host = HostCache(corpus.store, room, pinned=scale.device != "cpu")
        for _ in range(2):  # used again: copied
            for key in named:
                host.get(key, layout)
        host.settle()
        files, paths = HostCache(corpus.store, 0), [corpus.store.path(key) for key in named]
        seen: dict[str, list[tuple[float, float]]] = {}
        for _ in range(_RUNS):
            for path in paths:
                let_go(path)
            if not any(map(is_resident, paths)):
                seen.setdefault("disk", []).append(_loaded(files, named, layout, out))
            seen.setdefault("page cache", []).append(_loaded(files, named, layout, out))
            seen.setdefault("host tier", []).append(_loaded(host, named, layout, out))
        stored, tokens = sum(map(corpus.store.bytes_of, named)), len(chunks) * scale.chunk_tokens
        for source, runs in seen.items():
            seconds, reading = (statistics.median(column) for column in zip(*runs, strict=True))
            rows.append(
                LoadRow(
                    kv_format=kv_format,
                    source=source,
                    tokens=tokens,
                    stored_gb_s=stored / seconds / _GB,
                    bf16_gb_s=tokens * layout.bytes_per_token / seconds / _GB,
                    ms=seconds * 1e3,
                    read_ms=reading * 1e3,
                )
            )
    return rows


def let_go(path: Path) -> None:
    """Have the kernel drop a file that no one maps from its page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class _NoPrefiller:
    """Formats are made of each other."""

    def prefill(self, batch: Batch, keys: KeyMaker) -> None:
        raise Rejected("there is no KV to load: measure the part `ingest` first")


def _loaded(tier: HostCache, named: Sequence[str], layout: Layout, out: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Seconds of all, and those of reading."""
    reading = 0.0
    began = time.perf_counter()
    for key in named:
        at = time.perf_counter()
        kv = tier.get(key, layout, in_memory=tier.in_memory(key))
        reading += time.perf_counter() - at
        if kv is None:
            raise Rejected("a KV file is gone or damaged: measure the part `ingest` again")
        kv.copy_into(out[0], out[1], slice(None), 0)
    if out[0].device.type != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began, reading
