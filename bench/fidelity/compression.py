"""KV of chunks with some tokens left out, for the question at hand."""

from collections.abc import Mapping, Sequence

from ingest.compress.compressor import AT_ONCE, Compressor
from ragkv.batched import batched
from ragkv.chunk import Chunk
from ragkv.compression import Compression
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import Layout
from ragkv.kv.store import KVStore


def keep_compressed(
    chunks: Sequence[Chunk],
    whole: KeyMaker,
    variants: Mapping[Compression, KeyMaker],
    compressor: Compressor,
    store: KVStore,
    layout: Layout,
) -> None:
    """Keep KV of what stays of each chunk under each compression, from KV that `whole` names. The chunks are read once
    for all of them."""
    methods = [compression.method for compression in variants]
    by_length = sorted(chunks, key=lambda chunk: chunk.num_tokens) if variants else []
    for batch in batched(by_length, AT_ONCE):
        views = compressor.views([chunk.token_ids for chunk in batch], methods)
        for chunk, view in zip(batch, views, strict=True):
            kv = store.get(whole.chunk(chunk.token_ids), layout)
            assert kv is not None, "prefilled before anything is left out"
            for compression, keys in variants.items():
                store.put(keys.chunk(chunk.token_ids), compressor.left_of(kv, view, compression))
