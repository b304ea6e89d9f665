"""An engine for one shape, and the parts that are measured with it."""

import asyncio
import multiprocessing
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.gpu.corpus import Corpus
from bench.gpu.device import first_gpu, resident_gib
from bench.gpu.ingestion import IngestRow, measure_ingestion
from bench.gpu.report import MemoryRow
from bench.gpu.scale import RATIOS, Scale
from bench.gpu.shapes import Shape
from bench.gpu.streams import StreamRow, Streams
from bench.serving.engine import Serving, contexts_of
from bench.serving.load import Mode, Plan, ServeRow
from bench.ttft import Bench, TtftRow
from ragkv.answer.recompute import Recompute, Recomputing
from ragkv.chunk import Passage
from ragkv.engine.local import LocalEngine
from ragkv.engine.protocol import Generate
from ragkv.errors import Rejected
from ragkv.kv.format import KVFormat, share_of
from ragkv.stitch.select import block_size_of

GIB = 2**30
_MODES: tuple[Mode, ...] = ("stitched", "full")
_ACTIVATIONS_GIB = 8.0
"""Memory of the device, beside weights and cache: for a step of 8,192 tokens and what stitching writes through."""
_HOST_TIER_SHARE = 2.25
"""Host memory as a share of the corpus's KV: room for all of it, each tensor in a power of two of bytes."""
_LOOK_EVERY_S = 0.05

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measuring:
    """A started engine with its corpus."""

    shape: Shape
    corpus: Corpus
    engine: LocalEngine
    scale: Scale
    memory_before: list[MemoryRow]
    bare_s: float

    async def ingest(self, progress: Progress) -> list[IngestRow]:
        return await measure_ingestion(self.shape, self.corpus, self.engine, self.scale, self.bare_s)

    async def ttft(self, progress: Progress) -> list[TtftRow]:
        policy = self.corpus.settings.recompute_policy
        bench = Bench(
            self.engine, self.corpus.prompts, self.corpus.planner, self.corpus.keys, policy, block_size_of(policy), RATIOS
        )  # fmt: skip
        return [row async for row in bench.measure(self.corpus.chunks, self.scale.sizes, self.scale.runs, progress)]

    async def latency(self, progress: Progress) -> list[StreamRow]:
        scale, prompt = self.scale, self.corpus.prompts.build(self.corpus.chunks[:1], "And then?", 1)
        streams = Streams(
            serving=self._serving(scale.arrivals, scale.answer),
            prompt=prompt,
            streams=scale.streams,
            tokens=self.corpus.settings.max_model_len - len(prompt.token_ids),
            arrivals=scale.arrivals,
            arrivals_a_second=scale.arrivals_a_second,
            answer=scale.answer,
        )
        return await streams.measure(scale.rounds, progress)

    async def serve(self, progress: Progress) -> list[ServeRow]:
        rows = []
        for clients, questions in self.scale.clients.items():
            plan = Plan(
                clients=clients, rate=None, context=self.scale.context, answer=self.scale.answer, questions=questions, rounds=1,
                modes=_MODES,
            )  # fmt: skip
            serving = self._serving(clients, self.scale.answer)
            rows += await serving.measure(plan, lambda mode, clients=clients: progress(f"{clients} clients, {mode}"))  # type: ignore[misc]
        return rows

    async def memory(self, progress: Progress) -> list[MemoryRow]:
        """The device's memory at rest and at its peak for the largest context, the host's, and what KV takes."""
        rows = [*self.memory_before, MemoryRow("weights, computed", self.shape.weight_bytes / GIB)]
        rows.append(MemoryRow("vLLM's paged cache, as set", self.corpus.settings.kv_cache_gib or 0))
        rows += _on_the_device("device, engine at rest")
        for what, ratio in (("full prefill", None), ("stitched", 0.0), ("stitched, 10% recomputed", 0.1)):
            label = f"{what} of {max(self.scale.sizes):,} tokens"
            progress(label)
            asking = asyncio.create_task(self._ask_largest(ratio))
            peak = 0.0
            while not asking.done():
                seen = await asyncio.to_thread(_on_the_device, label)
                peak = max(peak, *(row.gib for row in seen), 0.0)
                await asyncio.sleep(_LOOK_EVERY_S)
            await asking
            rows += [MemoryRow(f"device, at most: {label}", peak)] * (peak > 0)
        processes = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
        rows.append(MemoryRow("host, vLLM's processes", sum(map(resident_gib, processes))))
        rows.append(MemoryRow("host tier, at most", (self.corpus.settings.host_kv_bytes or 0) / GIB))
        layout = self.shape.layout
        for kv_format in KVFormat:
            share = share_of(kv_format, layout.head_dim, self.scale.chunk_tokens)
            rows.append(MemoryRow(f"KV of 1,000 tokens, {kv_format}", 1000 * layout.bytes_per_token * share / GIB))
        return rows

    async def _ask_largest(self, ratio: float | None) -> None:
        corpus, tokens = self.corpus, max(self.scale.sizes)
        chunks = corpus.chunks[: tokens // self.scale.chunk_tokens]
        prompt = corpus.prompts.build(chunks, "And then?", 2)
        plan = None
        if ratio is not None:
            passages = [Passage(chunk, score=float(place), hop=1) for place, chunk in enumerate(chunks)]
            policy = corpus.settings.recompute_policy
            located = corpus.planner.locate(passages, corpus.keys)
            plan = corpus.planner.plan(prompt, located, Recompute(policy, ratio, block_size_of(policy)), None)
        async for _ in self.engine.generate(Generate(prompt.token_ids, uuid.uuid4().hex, plan, 2, ignore_eos=True)):
            pass

    def _serving(self, number: int, answer: int) -> Serving:
        """Contexts of the corpus, stitched as the service does by default."""
        corpus = self.corpus
        recompute = Recomputing(corpus.settings, writer_suffices=False).default(written=False)
        contexts = contexts_of(corpus.chunks, number, self.scale.context, answer, corpus.prompts)
        return Serving(self.engine, corpus.planner, corpus.keys, recompute, contexts)


@asynccontextmanager
async def measuring(
    shape: Shape, folder: Path, scale: Scale, *, eager: bool, dummy: bool, bare_s: float = 0.0
) -> AsyncIterator[Measuring]:
    """An engine over the model in the folder, or with `dummy` over weights that vLLM draws, with the corpus's KV.
    bare_s: of `measure_bare`.

    Raises Rejected for a device that has too little memory for the shape.
    """
    corpus = Corpus.of(shape, folder, scale)
    kv_bytes = sum(chunk.num_tokens for chunk in corpus.chunks) * shape.layout.bytes_per_token
    settings = msgspec.structs.replace(
        corpus.settings,
        kv_cache_gib=_cache_gib(shape, scale),
        enforce_eager=eager or None,
        host_kv_bytes=int(kv_bytes * _HOST_TIER_SHARE),
    )
    corpus = replace(corpus, settings=settings)
    overrides = {"load_format": "dummy"} if dummy else {"max_logprobs": -1}
    baseline = _on_the_device("device, before the engine")
    engine = LocalEngine(settings, folder, shape.layout, overrides)
    try:
        await engine.start()
        await corpus.write(engine)
        yield Measuring(shape, corpus, engine, scale, baseline, bare_s)
    finally:
        await engine.stop()


def _cache_gib(shape: Shape, scale: Scale) -> float:
    """Size of the paged cache: enough that what a prefix-cache hit needs outlives a round of all methods, and no more
    than the device has."""
    gpu = None if scale.device == "cpu" else first_gpu()
    if gpu is None:
        return scale.max_cache_gib
    room = gpu.total_gib - gpu.used_gib - shape.weight_bytes / GIB - _ACTIVATIONS_GIB
    methods = len(RATIOS) + 3
    needed = methods * max(scale.sizes) * shape.layout.bytes_per_token / GIB
    if room < needed:
        raise Rejected(
            f"{shape.name} with contexts of {max(scale.sizes):,} tokens needs {needed:.0f} GiB of KV cache, {gpu.name} has {room:.0f} "
            "beside the weights: give smaller contexts (--size)"
        )
    return min(room, scale.max_cache_gib)


def _on_the_device(what: str) -> list[MemoryRow]:
    gpu = first_gpu()
    return [] if gpu is None else [MemoryRow(what, gpu.used_gib)]
