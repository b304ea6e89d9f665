"""A served model with real chunks whose KV lies in a store, and an engine that runs in a thread of its own."""

import asyncio
import itertools
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.parse import parse
from ingest.split import split
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt, PromptBuilder, Wording
from ragkv.chunk import Chunk, Passage
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Engine, Generate, Prefill, PrefillChunk, Report
from ragkv.kv.file import PlainKV
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import Layout, layout_of, read_config
from ragkv.kv.store import KVStore
from ragkv.models import Fingerprints
from ragkv.prefill.precompute import Prefiller, precompute
from ragkv.settings import Settings
from ragkv.span import Span
from ragkv.stitch.located import LocatedKV, locate
from ragkv.stitch.plan import PlacedChunk, StitchPlan
from ragkv.tokenizer import Tokenizer
from tests.support.made_kv import stored_kv

SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "documents"


@dataclass(frozen=True)
class Answered:
    """A finished generation: per-step log probabilities of the tokens the engine reported."""

    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...]
    report: Report


@dataclass
class Model:
    """One model folder and chunks of the sample corpus."""

    settings: Settings
    chunks: list[Chunk]
    layout: Layout
    prompts: PromptBuilder
    keys: KeyMaker
    store: KVStore

    @classmethod
    def prepare(cls, settings: Settings, num_chunks: int) -> "Model":
        folder = Path(settings.model)
        layout = layout_of(read_config(folder), settings.dtype)
        tokenizer = Tokenizer.load(folder)
        prompts = PromptBuilder(tokenizer, Wording(settings.instructions), settings.max_model_len)
        keys = KeyMaker(
            b"a secret of 32 bytes, more or less",
            Fingerprints().weights(folder),
            str(layout.dtype),
            prompts.prefix_ids,
            kv_format=settings.kv_format,
        )
        chunks = list(itertools.islice(sample_chunks(tokenizer, settings.chunk_tokens), num_chunks))
        return cls(settings, chunks, layout, prompts, keys, KVStore(settings.kv_dir))

    def prompt(
        self, chunks: Sequence[Chunk], question: str = "Who directed the film, and where were they born?"
    ) -> Prompt:
        return self.prompts.build(chunks, question, answer_tokens=32)

    def placed(self, chunks: Sequence[Chunk], prompt: Prompt) -> tuple[PlacedChunk, ...]:
        outputs = [PlacedChunk(self.keys.prefix(), prompt.prefix)]
        outputs += [
            PlacedChunk(self.keys.chunk(c.token_ids), span) for c, span in zip(chunks, prompt.chunks, strict=True)
        ]
        return tuple(outputs)

    def plan(self, chunks: Sequence[Chunk], recompute: Sequence[Span] = ()) -> StitchPlan:
        return StitchPlan(self.placed(chunks, self.prompt(chunks)), tuple(recompute))

    @property
    def planner(self) -> Planner:
        return Planner(self.store)

    def located(self, chunks: Sequence[Chunk], keys: KeyMaker | None = None) -> LocatedKV:
        return locate(passages(chunks), keys or self.keys, self.store)


def sample_chunks(tokenizer: Tokenizer, chunk_tokens: int) -> "itertools.chain[Chunk]":
    """Real text: the corpus the repo carries."""
    paths = sorted(p for p in SAMPLE.iterdir() if p.suffix in {".md", ".html", ".txt"})
    return itertools.chain.from_iterable(
        split(path.stem, parse(path.name, path.read_bytes()), tokenizer, chunk_tokens) for path in paths
    )


@dataclass
class World:
    """A model and the engine that serves it."""

    model: Model
    engine: Engine

    def start(self) -> "World":
        run_in_background(self.engine.start())
        self.ingest(self.model.chunks)
        return self

    def ingest(self, chunks: Sequence[Chunk], keys: KeyMaker | None = None) -> None:
        """Have the engine prefill chunks that have no KV yet."""
        precompute(chunks, keys or self.model.keys, lambda: self.prefiller, self.model.store)

    def prefilled(self, prefix_ids: Sequence[int], token_ids: Sequence[int]) -> PlainKV:
        """KV of tokens behind a prefix, as the engine stores it."""
        key = uuid.uuid4().hex * 2
        chunk = PrefillChunk(key, tuple(token_ids))
        run_in_background(self.engine.prefill(Prefill(uuid.uuid4().hex * 2, tuple(prefix_ids), (chunk,))))
        kv = stored_kv(self.model.store, key, self.model.layout)
        assert isinstance(kv, PlainKV)
        self.model.store.drop([key])
        return kv

    @property
    def prefiller(self) -> Prefiller:
        return Prefiller(self.engine, self.model.prompts, run_in_background)

    def stop(self) -> None:
        run_in_background(self.engine.stop())

    def ask(self, prompt: Prompt, plan: StitchPlan | None = None, **options: Any) -> Answered:
        return run_in_background(self.answer(request(prompt, plan, **options)))

    def ask_all(self, requests: Sequence[Generate]) -> list[Answered]:
        """All at once, in as few steps as the engine likes."""

        async def gather() -> list[Answered]:
            return await asyncio.gather(*map(self.answer, requests))

        return run_in_background(gather())

    async def answer(self, asked: Generate) -> Answered:
        outputs = [output async for output in self.engine.generate(asked)]
        report = outputs[-1].report
        assert report is not None
        return Answered(
            token_ids=tuple(token for output in outputs for token in output.token_ids),
            logprobs=tuple(step for output in outputs for step in output.logprobs),
            report=report,
        )


def request(prompt: Prompt, plan: StitchPlan | None = None, **options: Any) -> Generate:
    """A request under a salt of its own, unless one is given."""
    defaults = {"salt": uuid.uuid4().hex, "max_tokens": 2, "ignore_eos": True}
    return Generate(prompt.token_ids, plan=plan, **(defaults | options))


def whole_context(prompt: Prompt) -> Span:
    return Span(prompt.prefix.end, prompt.question.start)


def kl(reference: dict[int, float], other: dict[int, float]) -> float:
    """KL divergence in nats of two distributions over the whole vocabulary."""
    assert reference.keys() == other.keys()
    assert all(math.isclose(sum(map(math.exp, each.values())), 1, abs_tol=1e-3) for each in (reference, other))
    return sum(math.exp(p) * (p - other[token]) for token, p in reference.items() if p > -math.inf)


def stitched_elsewhere(world: World, chunk: Chunk, blocks: int = 3) -> float:
    """How far KV of the prefix and a chunk, stitched so many cache blocks behind where it was prefilled, is from what
    the engine computes there: relative to the largest value. Needs `Peek`.

    Keys see only how far they are apart: with all positions moved alike, the engine computes the same, turned.
    """
    prefix = world.model.keys.prefix_ids
    keys = [world.model.keys.prefix(), world.model.keys.chunk(chunk.token_ids)]
    args = [*prefix, *chunk.token_ids], keys, len(prefix), blocks
    [difference] = run_in_background(world.engine._llm.collective_rpc("stitched_elsewhere", args=args))
    return float(difference)


def passages(chunks: Sequence[Chunk]) -> list[Passage]:
    """Chunks as passages, the last the best."""
    return [Passage(chunk, score=float(rank), hop=1) for rank, chunk in enumerate(chunks)]
