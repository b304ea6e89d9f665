"""Ingestion's prefill costs little more than the forward it needs."""

import statistics
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from ragkv.kv.format import KVFormat
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import layout_of, read_config
from ragkv.kv.store import KVStore
from ragkv.prefill.prefill import Prefiller

PREFIX, CHUNK, BATCH, ROUNDS = 48, 256, 6, 5


@pytest.mark.long
def test_prefill_with_kv_files_keeps_80_percent_of_a_bare_forwards_speed(language_model: Path, tmp_path: Path) -> None:
    """Same batches, interleaved, medians; capture, Q-Cache, checksum, fsync and all."""
    layout = layout_of(read_config(language_model))
    torch.manual_seed(0)
    ids = torch.randint(3, 40_000, (BATCH, PREFIX + CHUNK))
    ids[:, :PREFIX] = ids[0, :PREFIX]
    bare = AutoModel.from_pretrained(language_model, dtype=layout.dtype, attn_implementation="sdpa").eval()
    prefiller = Prefiller.load(language_model, layout)
    store, keys = KVStore(tmp_path), KeyMaker(b"k" * 32, "m", "d", ())

    @torch.inference_mode()
    def forward() -> None:
        bare(ids, use_cache=False)

    def prefill_and_keep() -> None:
        chunks = ids[:, PREFIX:].tolist()
        _, *kvs = prefiller.prefill(ids[0, :PREFIX].tolist(), chunks)
        store.put_all({keys.chunk(chunk): kv for chunk, kv in zip(chunks, kvs, strict=True)}, KVFormat.BF16)

    times = {forward: [], prefill_and_keep: []}
    for _ in range(ROUNDS + 1):
        for work, taken in times.items():
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
    median = {work: statistics.median(taken[1:]) for work, taken in times.items()}
    share = median[forward] / median[prefill_and_keep]
    rate = ids.numel() / median[prefill_and_keep]
    print(f"\nprefill and keep: {rate:.0f} tokens/s, {share:.0%} of the bare forward's")
    assert share >= 0.8
