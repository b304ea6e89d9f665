"""Vectors of a question that runs behind the prefix, without documents."""

import uuid
from collections import OrderedDict
from collections.abc import Sequence

import torch

from ragkv.answer.prompt import PromptBuilder
from ragkv.engine.protocol import Engine, Generate
from ragkv.errors import Unavailable
from ragkv.kv.key import KeyMaker
from ragkv.span import Span
from ragkv.stitch.plan import PlacedChunk, StitchPlan
from ragkv.threads import Threads

_KEPT = 64
"""Questions whose vectors are kept: up to a megabyte each with a large model."""


class QuestionVectors:
    """Asks the engine for a question's vectors, and keeps those of the latest questions."""

    def __init__(self, engine: Engine, prompts: PromptBuilder, threads: Threads) -> None:
        self._engine = engine
        self._prompts = prompts
        self._threads = threads
        self._kept: OrderedDict[tuple[str, str], torch.Tensor] = OrderedDict()

    async def of(self, question: str, keys: KeyMaker) -> torch.Tensor:
        """[q_layers, q_heads, head_dim] float32. Needs no document, so it runs beside retrieval."""
        name = (keys.prefix(), question)
        if name not in self._kept:
            self._kept[name] = await self._ask(question, keys)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        return self._kept[name]

    async def _ask(self, question: str, keys: KeyMaker) -> torch.Tensor:
        question_ids = await self._threads.run(self._prompts.question_ids, question)
        report = None
        async for output in self._engine.generate(behind_prefix(self._prompts.prefix_ids, question_ids, keys)):
            report = output.report
        if report is None or report.queries is None:
            raise Unavailable(
                "the engine returned no query vectors: use a policy that needs none, such as passages or none"
            )
        return report.queries


def behind_prefix(prefix_ids: Sequence[int], question_ids: Sequence[int], keys: KeyMaker) -> Generate:
    """A request that runs a question behind the prefix alone and reports its queries."""
    ids = (*prefix_ids, *question_ids)
    question = Span(len(prefix_ids), len(ids))
    placed = PlacedChunk(keys.prefix(), Span(0, question.start)), PlacedChunk(None, question)
    plan = StitchPlan(placed, model=keys.model)
    # A salt of its own: tokens found in the prefix cache would not run, and show no queries.
    return Generate(ids, uuid.uuid4().hex, plan, max_tokens=1, ignore_eos=True, capture=question)
