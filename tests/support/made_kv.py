"""KV of chunks, made of random numbers."""

from dataclasses import fields, replace

import torch

from ragkv.kv.file import PlainKV, StoredKV
from ragkv.kv.layout import Layout
from ragkv.kv.pieces import FilePart
from ragkv.kv.quantise import Packed
from ragkv.kv.store import KVStore

LAYOUT = Layout(layers=6, q_heads=4, kv_heads=2, head_dim=8, dtype=torch.bfloat16)
KEY = "ab" * 32
TOKENS = 20


def chunk_kv(layout: Layout = LAYOUT, tokens: int = TOKENS, seed: int = 0) -> PlainKV:
    """KV of a chunk, the same at every call."""
    make = torch.Generator().manual_seed(seed)
    shape = (layout.layers, tokens, layout.kv_heads, layout.head_dim)
    queries = (len(layout.q_layers), layout.q_heads, layout.head_dim)
    means = (2, len(layout.q_layers), layout.kv_heads, layout.head_dim)
    keys, values = (torch.randn(shape, generator=make).to(layout.dtype) for _ in range(2))
    return PlainKV(keys, values, *(torch.randn(some, generator=make) for some in (queries, queries, means)))


def some_kv(tokens: int = TOKENS, dtype: torch.dtype = LAYOUT.dtype) -> PlainKV:
    """KV of a chunk, another at every call."""
    return chunk_kv(replace(LAYOUT, dtype=dtype), tokens, int(torch.randint(2**31, ())))


def stored_kv(store: KVStore, key: str, layout: Layout) -> StoredKV | None:
    """The KV of a key in memory; None if there is none to use."""
    kv = store.open(key, layout)
    return None if kv is None else loaded(kv)


def loaded(kv):
    """All of it in memory. Raises OSError."""
    parts = {part.name: getattr(kv, part.name) for part in fields(kv)}
    return replace(kv, **{name: _loaded_part(part) for name, part in parts.items()})


def _loaded_part(part):
    if isinstance(part, Packed):
        return loaded(part)
    return part[:, :] if isinstance(part, FilePart) else part
