"""One question under every method, through the engine.

First each method's prompt is run alone, one after the other, under a separate salt: that gives times, and leaves the
prompt's KV in vLLM's prefix cache. Then, under the same salts and all at once, come the greedy answers and, for each
token of the known answer, the distribution over the whole vocabulary that the model gives it. These find the context in
the cache and cost little. Methods are taken in groups small enough for the cache to hold.

What is drawn depends on the seed alone. In bfloat16 a distribution also depends, by rounding, on which other requests
share its step: figures of two equal runs differ in the second or third decimal.
"""

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.fidelity.kit import ANSWER_TOKENS, Case, Kit, Prepared
from bench.fidelity.methods import Method, context_of
from bench.ttft import timed
from ragkv.engine.protocol import WHOLE_VOCABULARY, Engine, Generate, Report, Sampling
from ragkv.errors import Unavailable
from ragkv.ids import batched
from ragkv.service.evaluations.fidelity import settled
from ragkv.service.evaluations.metrics import best_f1, exact_match, mean_kl, mean_nll, normalised
from ragkv.stitch.plan import StitchPlan

BLOCK_TOKENS = 32
"""vLLM's blocks while measuring. A prompt's last, partial block is not cached. With small blocks the question nearly
fills it alone: what follows the first request finds the stitched context, or has a few tokens of it stitched again, as
they were."""
ENGINE_ARGUMENTS = {"max_logprobs": WHOLE_VOCABULARY, "block_size": BLOCK_TOKENS}
_CACHE_SHARE = 0.8  # of the KV cache that one group of methods may fill
_TIMED_TOKENS = 2  # the first is timed, the report comes with the second

MethodProgress = Callable[[str], None]


class MethodOutcome(msgspec.Struct, frozen=True):
    """One method on one question. em and f1 in [0, 1]; nll and kl in nats a token of the known answer.

    ttft_s: from the moment the passages are known, planning and the question's vectors included, retrieval not.
    recomputed_tokens: run through the model in place, as the engine counts them (policies in the engine may take tokens
    of the prefix, too); under full prefill the whole context. kl_of_plain: of a variant, KL of the plain method's
    distribution to this one's.
    """

    answer: str
    em: float
    f1: float
    nll: float
    kl: float
    agree: bool
    ttft_s: float
    recomputed_tokens: int
    context_tokens: int
    kl_of_plain: float | None = None


class Record(msgspec.Struct, frozen=True):
    """One question, by its line in the data and its id, with an outcome for each method's key."""

    line: int
    id: str
    outcomes: dict[str, MethodOutcome]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A method whose prompt has run once."""

    prepared: Prepared
    salt: str
    ttft_s: float
    report: Report

    @property
    def plan(self) -> StitchPlan | None:
        """The plan of later requests: nothing is left to select."""
        return settled(self.prepared.plan, self.report)

    @property
    def recomputed_tokens(self) -> int:
        context = context_of(self.prepared.prompt).num_tokens
        return context if self.prepared.plan is None else self.report.recomputed


@dataclass(frozen=True, slots=True)
class _Answered:
    """A method with its answer and, for each token of the known answer, log probabilities [tokens, vocabulary]."""

    begun: _Begun
    answer: str
    log_probs: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Measure:
    """Measures questions with an engine that was started with ENGINE_ARGUMENTS and holds `cache_tokens` of KV."""

    engine: Engine
    kit: Kit
    cache_tokens: int

    async def measure(
        self, case: Case, methods: Sequence[Method], progress: MethodProgress
    ) -> dict[str, MethodOutcome]:
        """An outcome for each method, by its key. `progress` is told each method as it begins.

        Raises Unavailable if the engine did not do what was planned: then the figures would be of something else.
        """
        compared = {method.reference for method in methods} | {method.plain for method in methods}
        references: dict[str, _Answered] = {}
        waiting: list[tuple[Method, _Answered]] = []
        outcomes: dict[str, MethodOutcome] = {}
        for group in self._groups(case, methods):
            begun = []
            for method in group:
                progress(method.key)
                begun.append(await self._begin(case, method))
            finished = await asyncio.gather(*(self._finish(case, start) for start in begun))
            seen = {method.key: answered for method, answered in zip(group, finished, strict=True)}
            references |= {key: answered for key, answered in seen.items() if key in compared}
            waiting += [(method, answered) for method, answered in zip(group, finished, strict=True) if method.plain]
            outcomes |= {m.key: _outcome(case, seen[m.key], references[m.reference]) for m in group if not m.plain}
        return outcomes | {
            method.key: _outcome(case, answered, references[method.reference], references[method.plain])
            for method, answered in waiting
            if method.plain
        }

    def _groups(self, case: Case, methods: Sequence[Method]) -> Iterator[Sequence[Method]]:
        """As many methods at a time as the cache holds: those that others are held against, then the rest.

        The rest begin with another one at each question, so that none always comes first.
        """
        references = {method.reference for method in methods}
        leading = [method for method in methods if method.key in references]
        remaining = [method for method in methods if method.key not in references]
        turn = case.question.line % max(len(remaining), 1)
        ordered = [*leading, *remaining[turn:], *remaining[:turn]]
        prompt = leading[0].prepare(self.kit, case).prompt  # full prefill's: none is longer
        tails = (len(case.answer_ids) + 1) * (prompt.question.num_tokens + ANSWER_TOKENS + 2 * BLOCK_TOKENS)
        size = max(1, math.floor(_CACHE_SHARE * self.cache_tokens / (len(prompt.token_ids) + tails)))
        return batched(ordered, size)

    async def _begin(self, case: Case, method: Method) -> _Begun:
        """The first token, timed, with nothing else running. Raises Unavailable where that is no measure."""
        began = time.perf_counter()
        prepared = method.prepare(self.kit, case)
        prepared_s = time.perf_counter() - began
        salt, ids = uuid.uuid4().hex, prepared.prompt.token_ids
        request = Generate(ids, salt, prepared.plan, max_tokens=_TIMED_TOKENS, ignore_eos=True)
        answer = await timed(self.engine, request)
        report = answer.report
        lost = len(report.failed_keys) + (prepared.plan.num_missing if prepared.plan else 0)
        if lost:
            raise Unavailable(f"{method.key}: the KV of {lost} chunks was evicted before it was used: run it again")
        if prepared.plan and report.stitched + report.recomputed != prepared.plan.end - report.cached:
            raise Unavailable(
                f"{method.key}: the engine placed {report.stitched + report.recomputed} tokens where {prepared.plan.end} were "
                "planned: is it another version?"
            )
        if report.cached:
            raise Unavailable(f"{method.key}: {report.cached} tokens were already cached, so its time is meaningless")
        return _Begun(prepared, salt, prepared_s + answer.first_s + case.vectors_s * method.needs_question, report)

    async def _finish(self, case: Case, begun: _Begun) -> _Answered:
        """The greedy answer and the distributions at the known one, of a prompt that is in the cache."""
        ids = begun.prepared.prompt.token_ids

        async def distribution(answer_ids: Sequence[int]) -> NDArray[np.float32]:
            """Log probabilities of the token after `answer_ids`, [vocabulary]."""
            request = Generate((*ids, *answer_ids), begun.salt, begun.plan, max_tokens=1, logprobs=WHOLE_VOCABULARY)
            (step,) = [step async for output in self.engine.generate(request) for step in output.logprobs]
            row = np.full(len(step), -np.inf, np.float32)
            row[np.fromiter(step.keys(), np.int64, len(step))] = np.fromiter(step.values(), np.float32, len(step))
            return row

        rows = asyncio.gather(*(distribution(case.answer_ids[:i]) for i in range(len(case.answer_ids))))
        request = Generate(ids, begun.salt, begun.plan, max_tokens=ANSWER_TOKENS, sampling=Sampling(stop=("\n",)))
        answer = "".join([output.text async for output in self.engine.generate(request)]).strip()
        return _Answered(begun, answer, np.stack(await rows))


def _outcome(case: Case, seen: _Answered, reference: _Answered, plain: _Answered | None = None) -> MethodOutcome:
    accepted = case.question.answers
    return MethodOutcome(
        answer=seen.answer,
        em=exact_match(seen.answer, accepted),
        f1=best_f1(seen.answer, accepted),
        nll=mean_nll(seen.log_probs, case.answer_ids),
        kl=mean_kl(reference.log_probs, seen.log_probs),
        agree=normalised(seen.answer) == normalised(reference.answer),
        ttft_s=seen.begun.ttft_s,
        recomputed_tokens=seen.begun.recomputed_tokens,
        context_tokens=context_of(seen.begun.prepared.prompt).num_tokens,
        kl_of_plain=None if plain is None else mean_kl(plain.log_probs, seen.log_probs),
    )
