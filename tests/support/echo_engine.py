"""An engine without a model: it gives the prompt's own tokens back. For tests of everything around the engine."""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch

from ragkv.engine.door import EngineDoor
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Generate, Output, Prefill, Report
from ragkv.engine.wire import pack_queries
from ragkv.errors import OutOfSpace, Unavailable
from ragkv.files_io import trouble_of
from ragkv.kv.file import PlainKV, block_means, left_of
from ragkv.kv.layout import Layout, layout_of, read_config
from ragkv.kv.store import KVStore
from ragkv.models import model_folder
from ragkv.settings import Settings
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.plan import EngineSelection, StitchPlan

QUERIES = (10, 9, 64)
"""Layers that keep a Q-Cache, query heads and head size, as `capture` reports them for SmolLM2-135M."""


class EchoEngine:
    """Keeps the Engine protocol. `running` counts generations in progress, `closed` those ended early; `latest` is the
    last request.

    With `stitches` it does what a plan says, as far as its report goes, and otherwise computes every prompt in full.
    `token_s`: how long each token takes that is computed or recomputed, before the first output.

    Sums of its reports hold by construction. Those of vLLM are held in tests/engine/test_load_failures.py and
    tests/engine/test_compressed.py, and over HTTP by `assert_whole` of tests/e2e/test_serve.py.
    """

    def __init__(self, settings: Settings, piece_s: float = 0.0, words: str = "Ada Lovelace wrote it.") -> None:
        self.window = settings.max_model_len
        self._settings = settings
        self.piece_s = piece_s
        self.words = words.split(" ")
        self.stitches = False
        self.token_s = 0.0
        self.started = False
        self.running = 0
        self.closed = 0
        self.fail_after: int | None = None
        self.latest: Generate | None = None

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.started = False

    async def ready(self) -> bool:
        return self.started

    async def status(self) -> str:
        return "ok" if self.started else "not started"

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        """The fixed words, one output each, at most `max_tokens` of them."""
        if not self.started:
            raise Unavailable("the engine has not started yet: try again in a minute")
        request.check_fits(self.window)
        self.latest = request
        self.running += 1
        finished = False
        report = self._report(request)
        try:
            await asyncio.sleep(self.token_s * (report.recomputed + report.computed))
            words = self.words[: request.max_tokens]
            for i, word in enumerate(words):
                await asyncio.sleep(self.piece_s)
                if self.fail_after == i:
                    raise Unavailable("the engine failed: it was told to")
                finished = i == len(words) - 1
                yield self._piece(request, word if i == 0 else f" {word}", i, report if finished else None)
        finally:
            self.running -= 1
            self.closed += not finished

    async def prefill(self, prefill: Prefill) -> None:
        """Store KV that depends on the tokens alone: random numbers, of which a compression keeps the first."""
        try:
            await asyncio.to_thread(self._store, prefill)
        except OSError as error:
            full = isinstance(trouble_of(error), OutOfSpace)
            raise (OutOfSpace if full else Unavailable)(f"KV was not stored: {error}") from error

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(read_config(model_folder(self._settings)), self._settings.dtype)

    def _store(self, prefill: Prefill) -> None:
        store = KVStore(self._settings.kv_dir)
        rows = {chunk.key: random_kv(chunk.token_ids, self._layout) for chunk in prefill.chunks}
        if prefill.compression is not None:
            for key, kv in rows.items():
                offsets = range(max(1, round(prefill.compression.keep * kv.num_tokens)))
                rows[key] = left_of(kv, offsets, self._layout)
        if prefill.prefix_key not in store:
            store.put(prefill.prefix_key, random_kv(prefill.prefix_ids, self._layout))
        for key, kv in rows.items():
            store.put(key, kv, prefill.kv_format)

    def _piece(self, request: Generate, text: str, index: int, report: Report | None) -> Output:
        reason = "length" if request.max_tokens < len(self.words) else "stop"
        token, steps = (request.allowed_token_ids or (request.token_ids[index],))[0], ()
        if request.logprobs is not None:
            share = 0.5 if request.plan else 0.6
            steps = ({token: math.log(share), token + 1: math.log(1 - share)},)
        return Output(text, (token,), steps, finish_reason=reason if report else None, report=report)

    def _report(self, request: Generate) -> Report:
        queries = pack_queries(torch.ones(QUERIES)) if request.capture else None
        plan = request.plan
        if plan is None or not self.stitches:
            return Report(computed=len(request.token_ids), queries=queries)
        spans = merge([*plan.recompute, *(_chosen(plan, plan.selection) if plan.selection else ())])
        redone = total_tokens(spans)
        return Report(
            stitched=plan.end - redone,
            recomputed=redone,
            computed=len(request.token_ids) - plan.end,
            fills=1,
            kv_load_ms=1.0,
            recompute_ms=redone * self.token_s * 1e3,
            recomputed_spans=spans,
            host_keys=frozenset(chunk.key for chunk in plan.placed if chunk.key),
            queries=queries,
        )


def random_kv(token_ids: Sequence[int], layout: Layout) -> PlainKV:
    """KV that depends on the tokens alone."""
    drawn = torch.Generator().manual_seed(hash(tuple(token_ids)) % 2**32)
    shape = (layout.layers, len(token_ids), layout.kv_heads, layout.head_dim)
    keys, values = (torch.randn(shape, generator=drawn).to(layout.dtype) for _ in "kv")
    vectors = (torch.randn(len(layout.q_layers), layout.q_heads, layout.head_dim, generator=drawn) for _ in "ab")
    return PlainKV(keys, values, *vectors, block_means(keys, layout.q_layers))


def _chosen(plan: StitchPlan, selection: EngineSelection) -> list[Span]:
    """The end of each chunk but the first, as much of it as a policy in the engine may spend."""
    return [
        Span(output.span.end - round(selection.ratio * output.span.num_tokens), output.span.end)
        for output in plan.placed[2:]
    ]


@contextmanager
def engine_for_workers(settings: Settings) -> Iterator[None]:
    """An EchoEngine at the socket where worker processes ask for it, while the block runs."""
    door = EngineDoor(EchoEngine(settings), settings.engine_socket)
    run_in_background(door.__aenter__())
    try:
        yield
    finally:
        run_in_background(door.__aexit__())
