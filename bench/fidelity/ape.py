"""APE's attention temperature on stitched KV, with nothing recomputed (Yang et al., arXiv 2502.05431).

APE encodes chunks apart behind a shared prefix, as ragkv does, and changes how they are read: logits of the chunks are
divided by a temperature, and the logarithm of their summed weights is multiplied by a scale. The temperature is exact
here: a chunk's keys divided by it are stored as KV files of their own. The scale is not: it depends on what each query
attends to, which no stored key or value says and vLLM's kernels do not show, so it is 1. APE also gives all chunks the
same positions; here they stand one after the other, as always. So this is a method to compare with, and no policy.
"""

from collections.abc import Sequence
from dataclasses import replace

from ragkv.chunk import Chunk
from ragkv.kv.file import PlainKV
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import Layout
from ragkv.kv.pieces import in_memory
from ragkv.kv.store import KVStore

TEMPERATURE = 0.9
"""The default of its authors' code."""


def tempered_keys(keys: KeyMaker) -> KeyMaker:
    """Names of the KV files that `temper` writes. The prefix's is as ever."""
    return replace(keys, writer=f"{keys.writer} at temperature {TEMPERATURE:g}")


def temper(chunks: Sequence[Chunk], keys: KeyMaker, store: KVStore, layout: Layout) -> None:
    """Write a KV file for each chunk that has one: the same with keys divided by the temperature."""
    for chunk in chunks:
        kv = store.get(keys.chunk(chunk.token_ids), layout)
        assert isinstance(kv, PlainKV), "prefilled before it is tempered, and not quantised"
        store.put(tempered_keys(keys).chunk(chunk.token_ids), replace(kv, keys=in_memory(kv.keys) / TEMPERATURE))
