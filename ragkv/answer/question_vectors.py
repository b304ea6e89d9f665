"""The question's initial vectors: its queries behind the prefix, before any document."""

import uuid
from collections import OrderedDict

import torch

from ragkv.answer.prompt import PromptBuilder
from ragkv.engine.protocol import Engine, Generate
from ragkv.errors import Unavailable
from ragkv.kv.key import KeyMaker
from ragkv.span import Span
from ragkv.stitch.plan import PlacedChunk, StitchPlan
from ragkv.threads import Threads

_KEPT = 1024


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
        ids = (*self._prompts.prefix_ids, *await self._threads.run(self._prompts.question_ids, question))
        prefix, rest = Span(0, len(self._prompts.prefix_ids)), Span(len(self._prompts.prefix_ids), len(ids))
        plan = StitchPlan((PlacedChunk(keys.prefix(), prefix), PlacedChunk(None, rest)))
        # A salt of its own: tokens found in the prefix cache would not run, and show no queries.
        # Two tokens: the report of a request's first step comes with its second.
        request = Generate(ids, uuid.uuid4().hex, plan, max_tokens=2, ignore_eos=True, capture=rest)
        report = None
        async for output in self._engine.generate(request):
            report = output.report
        if report is None or report.queries is None:
            raise Unavailable(
                "the engine returned no query vectors: use a policy that needs none, such as passages or none"
            )
        return report.queries
