"""One question of a run, stitched with the settings in use and with full prefill: on the engine that answers, one
prompt at a time.

The question is prepared like any other: its passages are retrieved, its KV is looked up, its plan made. Then its
prompt runs under salts of its own, stitched, and in full with what a compression leaves out of it, and each answer is
generated: that gives answers and times, and leaves the prompt's KV in vLLM's prefix cache. Under the same salts follow,
for each token of the known answer, the probabilities that the model gives the likeliest tokens, and the known one.
Without a known answer, full prefill's own counts as known. Users' questions come first: before each prompt the
measurement waits until none is being answered.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.question import Question
from ragkv.answer.service import Answerer, Prepared
from ragkv.engine.protocol import MAX_LOGPROBS, Engine, Generate, Report
from ragkv.errors import Rejected
from ragkv.ids import batched
from ragkv.service.evaluations.metrics import best_f1, likeliest_kl, normalised
from ragkv.service.evaluations.outcome import ComparedAnswers, FidelityOutcome
from ragkv.span import merge, total_tokens
from ragkv.stitch.plan import StitchPlan

KNOWN_TOKENS = 64
"""Tokens of a known answer, from its start, whose probabilities are compared; no more than an answer may have."""
AT_ONCE = 4
"""Prompts for probabilities that run together: they find all but their last tokens in the cache."""

LogProbs = Sequence[Mapping[int, float]]
"""For each token of the known answer, by token id."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """A prompt that was answered. `plan`: the one that the same prompt has next, with nothing left to select."""

    prompt: Prompt
    plan: StitchPlan | None
    salt: str
    text: str
    ttft_s: float
    report: Report


class FidelityMeter:
    """Measures questions with the parts that answer them."""

    def __init__(self, answerer: Answerer, engine: Engine, prompts: PromptBuilder, answer_tokens: int) -> None:
        self._answerer = answerer
        self._engine = engine
        self._prompts = prompts
        self._answer_tokens = answer_tokens

    async def measure(self, question: Question, known: Sequence[str]) -> tuple[FidelityOutcome, ComparedAnswers]:
        """Answer a question stitched and in full, and compare the two. Raises what answering the question raises, and
        Rejected for one that cannot be measured. known: accepted answers;
        probabilities are those of the first."""
        await self._answerer.until_idle()
        prepared = await self._answerer.prepare(question)
        whole = await self._answerer.prepare(replace(question, mode="full"))
        full = await self._answer(whole.prompt, None)
        stitched = await self._answer(prepared.prompt, prepared.plan)
        answer_ids = await asyncio.to_thread(self._prompts.answer_ids, known[0] if known else full.text)
        ids = answer_ids[: min(KNOWN_TOKENS, self._answer_tokens)]
        if not ids:
            raise Rejected("full prefill gave an empty answer, and no answer is known: there is nothing to compare")
        bare = await asyncio.to_thread(self._prompts.build, (), question.text, self._answer_tokens)
        without = await self._log_probs(bare, None, uuid.uuid4().hex, ids)
        of_full = await self._log_probs(full.prompt, None, full.salt, ids)
        of_stitched = await self._log_probs(stitched.prompt, stitched.plan, stitched.salt, ids)
        outcome = FidelityOutcome(
            kl=_mean([likeliest_kl(expected, actual) for expected, actual in zip(of_full, of_stitched, strict=True)]),
            nll=_nll(of_stitched, ids),
            nll_full=_nll(of_full, ids),
            nll_without=_nll(without, ids),
            agree=normalised(stitched.text) == normalised(full.text),
            f1=best_f1(stitched.text, known) if known else None,
            f1_full=best_f1(full.text, known) if known else None,
            ttft_ms=stitched.ttft_s * 1e3 + prepared.plan_ms,
            ttft_full_ms=full.ttft_s * 1e3,
            **_work(prepared, stitched.report),
        )
        return outcome, ComparedAnswers(stitched.text, full.text)

    async def _answer(self, prompt: Prompt, plan: StitchPlan | None) -> _Answered:
        """The whole answer. Under its own salt, none of the prompt is in the engine's cache."""
        await self._answerer.until_idle()
        salt, text, ttft_s, report = uuid.uuid4().hex, "", None, Report()
        began = time.perf_counter()
        request = Generate(prompt.token_ids, salt, plan, max_tokens=max(2, self._answer_tokens))
        async for output in self._engine.generate(request):
            ttft_s = ttft_s or time.perf_counter() - began
            text, report = text + output.text, output.report or report
        assert ttft_s is not None, "an engine's answer has an output"
        return _Answered(prompt, settled(plan, report), salt, text.strip(), ttft_s, report)

    async def _log_probs(self, prompt: Prompt, plan: StitchPlan | None, salt: str, ids: Sequence[int]) -> LogProbs:
        log_probs: list[Mapping[int, float]] = []
        for batch in batched(range(len(ids)), AT_ONCE):
            await self._answerer.until_idle()
            requests = (self._next_token(prompt, plan, salt, ids[:place], ids[place]) for place in batch)
            log_probs += await asyncio.gather(*requests)
        return log_probs

    async def _next_token(
        self, prompt: Prompt, plan: StitchPlan | None, salt: str, before: Sequence[int], token: int
    ) -> Mapping[int, float]:
        """Log probabilities of the likeliest tokens behind prompt and `before`, and of `token`."""
        request = Generate(
            (*prompt.token_ids, *before), salt, plan, max_tokens=1, logprobs=MAX_LOGPROBS, allowed_token_ids=(token,)
        )
        (step,) = [step async for output in self._engine.generate(request) for step in output.logprobs]
        return step


def settled(plan: StitchPlan | None, report: Report) -> StitchPlan | None:
    """The plan with what the engine selected written out: what of the prompt is not in its cache is then stitched again
    as it was, and not selected anew among fewer tokens."""
    if plan is None or plan.selection is None or report.recomputed_spans is None:
        return plan
    inside = (span for span in report.recomputed_spans if span.end <= plan.end)
    return msgspec.structs.replace(plan, recompute=merge((*plan.recompute, *inside)), selection=None)


def _work(prepared: Prepared, report: Report) -> dict[str, int]:
    """Tokens and passages of a stitched prompt; all are computed where nothing was stitched."""
    plan, context = prepared.plan, total_tokens(prepared.prompt.chunks)
    return {
        "recomputed_tokens": report.recomputed if plan else context,
        "context_tokens": context,
        "passages": len(prepared.passages),
        "passages_without_kv": plan.num_without_kv(report.failed_keys) if plan else 0,
    }


def _nll(log_probs: LogProbs, ids: Sequence[int]) -> float:
    return -_mean([step[token] for step, token in zip(log_probs, ids, strict=True)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
