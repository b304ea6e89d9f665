"""Many questions at once: stitched, in full, and from the engine's prefix cache, in turn on one engine."""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from bench.load import Ask, Seen, closed_loop, percentile, poisson
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Engine, Generate
from ragkv.errors import Rejected
from ragkv.kv.key import KeyMaker

Mode = Literal["stitched", "full", "cached"]
MODES: tuple[Mode, ...] = get_args(Mode)
_QUESTIONS = (
    "Which two of the people named in these passages worked together, and on what?",
    "What was built first, and who paid for it?",
    "Where did this happen, and in which year?",
    "Who is said to have disagreed, and why?",
)


class ServeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One mode. `clients`: null for questions that arrive at random. Seconds; null where nothing was answered."""

    mode: Mode
    clients: int | None
    rate: float | None
    context_tokens: int
    questions: int
    qps: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    errors: int


class ServeReport(msgspec.Struct, frozen=True):
    """The report of `ragkv bench serve --json`."""

    model: str
    machine: str
    rows: list[ServeRow]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to ask: `questions` of each mode in each of `rounds`, by so many clients in a closed loop or at a rate."""

    clients: int
    rate: float | None
    context_tokens: int
    answer_tokens: int
    questions: int
    rounds: int
    modes: tuple[Mode, ...] = MODES
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """Passages, and the prompts of different questions about them."""

    passages: tuple[Passage, ...]
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class Serving:
    """A started engine, and contexts whose KV is in the store."""

    engine: Engine
    planner: Planner
    keys: KeyMaker
    recompute: Recompute
    contexts: Sequence[Context]
    answer_tokens: int

    def ask(self, mode: Mode) -> Ask:
        """Questions in one mode. From the prefix cache: each context under a salt of its own, so that only its first question
        computes it; otherwise no question finds anything of an earlier one."""
        salts = [uuid.uuid4().hex for _ in self.contexts]

        async def asked(number: int) -> AsyncGenerator[object, None]:
            at = number % len(self.contexts)
            context = self.contexts[at]
            prompt = context.prompts[number // len(self.contexts) % len(context.prompts)]
            plan = None
            if mode == "stitched":
                plan = await asyncio.to_thread(
                    self.planner.plan, prompt, context.passages, self.keys, self.recompute, None
                )
            salt = salts[at] if mode == "cached" else uuid.uuid4().hex
            request = Generate(prompt.token_ids, salt, plan, max_tokens=self.answer_tokens, ignore_eos=True)
            async for output in self.engine.generate(request):
                yield output

        return asked

    async def measure(self, plan: Plan, progress: Callable[[Mode], None]) -> list[ServeRow]:
        """A row a mode. Modes take turns within a round, so that a machine that slows down slows all of them; a first round of
        one question a context is not counted, and leaves the contexts of `cached` in the engine's cache."""
        asks = {mode: self.ask(mode) for mode in plan.modes}
        seen = {mode: Seen() for mode in plan.modes}
        for ask in asks.values():
            await closed_loop(ask, range(len(self.contexts)), plan.clients, lambda: None)
        for number in range(plan.rounds):
            # Of other numbers than the warm-up's: the same contexts, other questions.
            numbers = range((number + 1) * plan.questions, (number + 2) * plan.questions)
            for mode, ask in asks.items():
                told = lambda mode=mode: progress(mode)  # noqa: E731
                if plan.rate is None:
                    seen[mode].add(await closed_loop(ask, numbers, plan.clients, told))
                else:
                    seen[mode].add(await poisson(ask, numbers, plan.rate, plan.seed + number, told))
        return [_row(mode, each, plan, self.contexts) for mode, each in seen.items()]


def contexts_of(chunks: Sequence[Chunk], plan: Plan, prompts: PromptBuilder) -> list[Context]:
    """As many contexts as there are clients, of chunks drawn at random. Raises Rejected for too little text."""
    drawn = random.Random(plan.seed)  # noqa: S311 - not for secrets
    if sum(chunk.num_tokens for chunk in chunks) < plan.context_tokens:
        raise Rejected(f"there is less text than {plan.context_tokens:,} tokens: ingest more documents first")
    return [_context(drawn.sample(chunks, len(chunks)), plan, prompts) for _ in range(max(plan.clients, 1))]


def _context(shuffled: Sequence[Chunk], plan: Plan, prompts: PromptBuilder) -> Context:
    taken: list[Chunk] = []
    room = plan.context_tokens
    for chunk in shuffled:
        if chunk.num_tokens <= room:
            taken.append(chunk)
            room -= chunk.num_tokens
    passages = tuple(Passage(chunk, score=float(place), hop=1) for place, chunk in enumerate(taken))
    return Context(passages, tuple(prompts.build(taken, question, plan.answer_tokens) for question in _QUESTIONS))


def _row(mode: Mode, seen: Seen, plan: Plan, contexts: Sequence[Context]) -> ServeRow:
    first, between = (
        [percentile(values, percent) if values else None for percent in (50, 95, 99)]
        for values in (seen.first, seen.between)
    )
    return ServeRow(
        mode=mode,
        clients=plan.clients if plan.rate is None else None,
        rate=plan.rate,
        context_tokens=sum(context.prompts[0].question.start for context in contexts) // len(contexts),
        questions=plan.questions * plan.rounds,
        qps=seen.per_second,
        ttft_p50_s=first[0],
        ttft_p95_s=first[1],
        ttft_p99_s=first[2],
        itl_p50_s=between[0],
        itl_p99_s=between[2],
        errors=seen.errors,
    )
