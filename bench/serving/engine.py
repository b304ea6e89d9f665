"""Questions to a separate engine: stitched, with full prefill, and from the engine's prefix cache."""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from bench.serving.load import Ask, Mode, Plan, ServeRow, measure, row_of
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Engine, Generate
from ragkv.errors import Rejected
from ragkv.kv.key import KeyMaker

_QUESTIONS = (
    "Which two of the people named in these passages worked together, and on what?",
    "What was built first, and who paid for it?",
    "Where did this happen, and in which year?",
    "Who is said to have disagreed, and why?",
)


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

    async def measure(self, plan: Plan, progress: Callable[[Mode], None]) -> list[ServeRow]:
        """A row a mode. The warm-up asks about each context once, and leaves those of `cached` in the engine's
        cache."""
        asks = {mode: self.ask(mode, plan.answer) for mode in plan.modes}
        tokens = sum(context.prompts[0].question.start for context in self.contexts) // len(self.contexts)
        seen = await measure(asks, plan, len(self.contexts), progress)
        return [row_of(mode, outcomes, plan, tokens) for mode, outcomes in seen.items()]

    def ask(self, mode: Mode, answer_tokens: int) -> Ask:
        """Questions about the contexts in turn. `cached`: each context has a salt of its own, so that only its first
        question computes it; in the other modes no question finds anything of an earlier one."""
        salts = [uuid.uuid4().hex for _ in self.contexts]

        async def asked(number: int) -> AsyncGenerator[object, None]:
            turn, at = divmod(number, len(self.contexts))
            context = self.contexts[at]
            prompt = context.prompts[turn % len(context.prompts)]
            plan = None
            if mode == "stitched":
                located = await asyncio.to_thread(self.planner.locate, context.passages, self.keys)
                plan = await asyncio.to_thread(self.planner.plan, prompt, located, self.recompute, None)
            salt = salts[at] if mode == "cached" else uuid.uuid4().hex
            request = Generate(prompt.token_ids, salt, plan, max_tokens=answer_tokens, ignore_eos=True)
            async for output in self.engine.generate(request):
                yield output

        return asked


def check_cache(contexts: Sequence[Context], cache_tokens: int) -> None:
    """Check that an engine's cache holds all contexts at once. Raises Rejected, saying what to do, for one that does
    not: questions in mode `cached` would be computed in full."""
    needed = sum(len(context.prompts[0].token_ids) for context in contexts)
    if needed > cache_tokens:
        raise Rejected(
            f"--mode cached needs {needed:,} tokens in the engine's cache, which holds {cache_tokens:,}: give fewer --clients, a "
            "smaller --context or a larger RAGKV_KV_CACHE_GIB, or leave it out by --mode stitched --mode full"
        )


def contexts_of(
    chunks: Sequence[Chunk], number: int, tokens: int, answer_tokens: int, prompts: PromptBuilder
) -> list[Context]:
    """Contexts of chunks drawn at random, each of at most so many tokens. Raises Rejected for too little text."""
    drawn = random.Random(0)  # noqa: S311 - not for secrets
    if sum(chunk.num_tokens for chunk in chunks) < tokens:
        raise Rejected(f"the collection has fewer than {tokens:,} tokens: ingest more there first")
    contexts = []
    for _ in range(number):
        selected: list[Chunk] = []
        room = tokens
        for chunk in drawn.sample(chunks, len(chunks)):
            if chunk.num_tokens <= room:
                selected.append(chunk)
                room -= chunk.num_tokens
        passages = tuple(Passage(chunk, score=float(place), hop=1) for place, chunk in enumerate(selected))
        questions = tuple(prompts.build(selected, question, answer_tokens) for question in _QUESTIONS)
        contexts.append(Context(passages, questions))
    return contexts
