"""The engine's prefill costs little more than the forward that it needs."""

import statistics
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Prefill, PrefillChunk
from tests.engine.world import World

PREFIX, CHUNK, BATCH, ROUNDS = 48, 256, 12, 7


@pytest.mark.long
def test_prefill_with_kv_files_keeps_90_percent_of_a_bare_forwards_speed(served: World, language_model: Path) -> None:
    """Same batches, interleaved, medians; requests, capture, Q-Cache, checksum, fsync and all."""
    torch.manual_seed(0)
    ids = torch.randint(3, 40_000, (BATCH, PREFIX + CHUNK))
    ids[:, :PREFIX] = ids[0, :PREFIX]
    bare = AutoModel.from_pretrained(language_model, dtype=served.model.layout.dtype, attn_implementation="sdpa").eval()
    prefix, rows = tuple(ids[0, :PREFIX].tolist()), ids[:, PREFIX:].tolist()

    @torch.inference_mode()
    def forward(number: int) -> None:
        bare(ids, use_cache=False)

    def prefill_and_keep(number: int) -> None:
        chunks = [PrefillChunk(f"{number:032x}{row:032x}", tuple(tokens)) for row, tokens in enumerate(rows)]
        run_in_background(served.engine.prefill(Prefill("f" * 64, prefix, tuple(chunks))))

    times = {forward: [], prefill_and_keep: []}
    for number in range(ROUNDS + 1):
        for work, taken in times.items():
            began = time.perf_counter()
            work(number)
            taken.append(time.perf_counter() - began)
    median = {work: statistics.median(taken[1:]) for work, taken in times.items()}
    share = median[forward] / median[prefill_and_keep]
    rate = ids.numel() / median[prefill_and_keep]
    print(f"\nprefill and keep: {rate:.0f} tokens/s, {share:.0%} of the bare forward's")
    assert share >= 0.9
