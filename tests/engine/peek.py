"""A worker extension that shows the engine's own KV. Loaded by the engine's process, for tests alone."""

import dataclasses
import os
import resource
import threading
import time
from collections.abc import Sequence

import torch
from vllm.distributed.kv_transfer import get_kv_transfer_group

from ragkv.connector import under_way
from ragkv.connector.metadata import KVSlice, StitchRequest
from ragkv.connector.select import Stitched, layers_looked_at, select_in_engine
from ragkv.connector.stitcher import Portion, Stitcher, Stopwatch
from ragkv.connector.under_way import READERS
from ragkv.engine.wire import planned_of
from ragkv.span import Span
from ragkv.stitch.plan import PlacedChunk, StitchPlan

MOST_S = 300.0
"""A test that fails holds no reader for ever."""


def write(
    stitcher: Stitcher, slices: Sequence[KVSlice], layers: Sequence[int], table: torch.Tensor
) -> tuple[Stitched, int]:
    """What was written, beside other requests, and how often they could go on."""
    stitcher.room.is_idle = False
    writing = stitcher.write(slices, layers, table, Stopwatch(table.device))
    pauses = 0
    while True:
        try:
            next(writing)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


class Peek:
    """Added to vLLM's worker by `worker_extension_cls`. Tensors pass through files: vLLM's RPC does not carry them."""

    def runner(self) -> tuple[str, bool]:
        """The module of the model runner, and whether steps are scheduled while another is under way."""
        return type(self.model_runner).__module__, self.vllm_config.scheduler_config.async_scheduling

    def read_contexts_once(self, least_saved: int) -> int:
        """From now on spans read their common context once if that saves so many tokens. Returns the tokens that
        attention has read so far. Under tests.engine.gpu_runner alone."""
        from flash_attention import Reads

        get_kv_transfer_group()._under_way._stitcher._model._common_context.least_saved = least_saved
        return Reads.tokens

    def time_as_on_gpus(self) -> None:
        """From now on stitches are timed in later steps, as if their work were still under way."""
        Stopwatch.may_run = True

    def save_own_kv(self, token_ids: list[int], file: str, first: int = 0) -> None:
        """Rotated keys and values that the engine computes for a prompt, [layer][key, value], in idle cache blocks.
        `first`: the position that its first token is told to have."""
        model = get_kv_transfer_group()._under_way._stitcher._model
        blocks = torch.arange(1, 2 + len(token_ids) // model.block_size)
        batch = model.batch([Span(0, len(token_ids))], blocks)
        seen: list[list[torch.Tensor]] = []
        with model.attention_hook(lambda _layer, _query, key, value: seen.append([key.clone(), value.clone()])):
            moved = dataclasses.replace(batch, positions=batch.positions + first)
            model.forward(token_ids, moved, blocks)
        torch.save(seen, file)

    def rotate_file(self, file: str, start: int) -> None:
        """Un-rotated keys [layers, tokens, kv_heads, head_dim] become what the engine would hold from `start` on."""
        model = get_kv_transfer_group()._under_way._stitcher._model
        keys = torch.load(file)
        positions = torch.arange(start, start + keys.shape[1])
        model.rotate(range(len(keys)), positions, keys)
        torch.save(keys, file)

    def stitched_elsewhere(self, token_ids: list[int], keys: list[str], prefix_tokens: int, blocks: int) -> float:
        """The connector writes prefix and chunk so many cache blocks behind where they were prefilled; then the engine
        computes the same there. Returns the largest difference of their cache blocks, relative to the largest value."""
        stitcher = get_kv_transfer_group()._under_way._stitcher
        model = stitcher._model
        first = blocks * model.block_size
        start, end = first + prefix_tokens, first + len(token_ids)
        before, prefix, chunk = Span(0, first), Span(first, start), Span(start, end)
        placed = PlacedChunk(None, before), PlacedChunk(keys[0], prefix), PlacedChunk(keys[1], chunk)
        table = torch.arange(1, 2 + end // model.block_size)
        stitch = StitchRequest("peek", StitchPlan(placed), Span(first, end), table.tolist(), [0] * first + token_ids)

        def blocks_at(there: torch.Tensor) -> list[torch.Tensor]:
            return [layer.kv_cache[there].clone() for layer in model.layers]

        def clear() -> None:
            for layer in model.layers:
                layer.kv_cache[table] = 0.0

        clear()
        with torch.inference_mode():
            fetched = stitcher.fetch(stitch)
            write(stitcher, fetched.slices, (), table)
            written = blocks_at(table[blocks:])
            clear()
            batch = model.batch([Span(0, len(token_ids))], table)
            moved = dataclasses.replace(batch, positions=batch.positions + first)
            model.forward(token_ids, moved, table)
            computed = blocks_at(table[: len(table) - blocks])
        assert [kv_slice.key for kv_slice in fetched.slices] == keys
        assert all(layer.abs().sum() > 0 for layer in computed)
        largest = max(layer.abs().max() for layer in computed)
        return float(max((ours - own).abs().max() for ours, own in zip(written, computed, strict=True)) / largest)

    def any_under_way(self) -> bool:
        """Whether a request has been begun to be stitched and is not done."""
        return bool(get_kv_transfer_group()._under_way._jobs)

    def chosen(self, params: dict[str, object], token_ids: list[int]) -> list[tuple[int, int]]:
        """What a plan's selection in the engine takes, over KV stitched into idle cache blocks."""
        stitcher = get_kv_transfer_group()._under_way._stitcher
        plan = planned_of(params, len(token_ids)).plan
        blocks = list(range(1, 2 + len(token_ids) // stitcher._model.block_size))
        stitch = StitchRequest("peek", plan, Span(0, plan.end), blocks, token_ids)
        fetched, table = stitcher.fetch(stitch), torch.tensor(blocks)
        with torch.inference_mode():
            stitched, _ = write(stitcher, fetched.slices, layers_looked_at(stitcher._model, stitch), table)
            spans = select_in_engine(stitcher._model, stitch, stitched)
        return [(span.start, span.end) for span in spans]

    def written_in_parts(self, params: dict[str, object], token_ids: list[int]) -> tuple[bool, int]:
        """Whether the prompt's stitched KV is the same, bit for bit, when it is written a chunk at a time as on an
        accelerator, and how often other requests could go on meanwhile."""
        stitcher = get_kv_transfer_group()._under_way._stitcher
        plan = planned_of(params, len(token_ids)).plan
        table = torch.arange(1, 2 + len(token_ids) // stitcher._model.block_size)
        stitch = StitchRequest("peek", plan, Span(0, plan.end), table.tolist(), token_ids)
        fetched, layers = stitcher.fetch(stitch), range(0, stitcher._layout.layers, 2)
        caches, keys = [], []
        own = stitcher.portion
        for portion in (own, Portion(1, stitcher._layout.layers, 2**28, readers=4)):
            for layer in stitcher._model.layers:
                layer.kv_cache[table] = 0.0
            stitcher.portion = portion
            with torch.inference_mode():
                stitched, pauses = write(stitcher, fetched.slices, layers, table)
            caches.append([layer.kv_cache[table].clone() for layer in stitcher._model.layers])
            keys.append([stitched.keys[layer] for layer in layers])
        stitcher.portion = own
        same = all(map(torch.equal, *caches)) and all(map(torch.equal, *keys))
        return same and all(layer.abs().sum() > 0 for layer in caches[0]), pauses

    def lend_blocks(self, own: list[int], count: int) -> tuple[list[int], bool]:
        """The blocks lent to a request that lacks so many, and whether what is written into them is gone afterwards."""
        model = get_kv_transfer_group()._under_way._stitcher._model
        caches = [layer.kv_cache for layer in model.layers[:2]]
        before = [cache[:8].clone() for cache in caches]
        with model.with_room_for((len(own) + count) * model.block_size, own, last_layer=1) as table:
            lent = table[len(own) :]
            for cache in caches:
                cache[lent] = 7.0
        return lent.tolist(), all(map(torch.equal, before, (cache[:8] for cache in caches)))

    def fail_recomputes(self, times: int, rank: int | None = None) -> None:
        """The next so many recomputes raise, when their request has written what it stitches. rank: on that one
        alone."""
        if rank not in {None, self.rank}:
            return
        stitcher = get_kv_transfer_group()._under_way._stitcher

        def fail(*args: object) -> None:
            nonlocal times
            times -= 1
            if times == 0:
                del stitcher._recompute
            raise RuntimeError("a test told it to")

        stitcher._recompute = fail

    def open_files(self, rank: int, *, may: bool) -> None:
        """Whether one rank may open files. Those that it has open stay so."""
        if rank != self.rank:
            return
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        if not may:
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))

    def wait_for_reads(self, seconds: float) -> None:
        """How long the KV of a prompt may take to be read from now on."""
        under_way.READING_S = seconds

    def hold_reads(self) -> None:
        """No KV file is read until `release_reads`."""
        self._may_read = threading.Event()
        for _ in range(READERS):
            get_kv_transfer_group()._under_way._readers.submit(self._may_read.wait, MOST_S)

    def release_reads(self) -> None:
        self._may_read.set()

    def delay_reads(self, rank: int, seconds: float) -> None:
        """One rank begins to read KV files so much later."""
        if rank == self.rank:
            for _ in range(READERS):
                get_kv_transfer_group()._under_way._readers.submit(time.sleep, seconds)
