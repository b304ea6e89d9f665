"""The oracle on the engine's own device: recomputed tokens, and KV at the position where it was prefilled, equal
full prefill."""

import random
import statistics
import uuid
from collections.abc import Sequence

import msgspec
import numpy as np

from bench.gpu.corpus import Corpus
from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import WHOLE_VOCABULARY, Engine, Generate
from ragkv.errors import Rejected
from ragkv.service.evaluations.metrics import mean_kl
from ragkv.stitch.plan import StitchPlan

BOUND = 0.02
"""Nats, in bfloat16: that of tests/engine/test_oracle.py."""
_QUESTION = "Which of these comes first?"
_CHUNKS_A_PROMPT = 4


class OracleRow(msgspec.Struct, frozen=True, kw_only=True):
    """KL of the first token's distribution to full prefill's, in nats. bound: null where none is meant to hold."""

    check: str
    prompts: int
    kl_max: float
    kl_mean: float
    bound: float | None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.kl_max <= self.bound


async def check_oracle(engine: Engine, corpus: Corpus, num_prompts: int) -> list[OracleRow]:
    """Two checks with a bound, and one that shows that they can fail: stitched with nothing recomputed."""
    draw = random.Random(7)  # noqa: S311 - not for secrets
    many = [draw.sample(corpus.chunks, _CHUNKS_A_PROMPT) for _ in range(num_prompts)]
    single = [[chunk] for chunk in draw.sample(corpus.chunks, min(num_prompts, len(corpus.chunks)))]
    checks = (
        ("everything recomputed", many, 1.0, BOUND),
        ("one chunk, where it was prefilled", single, 0.0, BOUND),
        ("nothing recomputed", many, 0.0, None),
    )
    rows = []
    for check, sets, ratio, bound in checks:
        divergences = [await _divergence(engine, corpus, chunks, ratio) for chunks in sets]
        rows.append(
            OracleRow(
                check=check,
                prompts=len(divergences),
                kl_max=max(divergences),
                kl_mean=statistics.mean(divergences),
                bound=bound,
            )
        )
    return rows


async def _divergence(engine: Engine, corpus: Corpus, chunks: Sequence[Chunk], ratio: float) -> float:
    prompt = corpus.prompts.build(chunks, _QUESTION, 2)
    passages = [Passage(chunk, score=float(place), hop=1) for place, chunk in enumerate(chunks)]
    located = corpus.planner.locate(passages, corpus.keys)
    plan = corpus.planner.plan(prompt, located, Recompute("none" if not ratio else "head", ratio, 1), None)
    if plan is None or plan.num_missing:
        raise Rejected("the oracle's chunks have no KV: measure again")
    full, stitched = [await _distribution(engine, prompt, stitch_plan) for stitch_plan in (None, plan)]
    return mean_kl(full[None], stitched[None])


async def _distribution(engine: Engine, prompt: Prompt, plan: StitchPlan | None) -> np.ndarray:
    """Log probabilities of the first token, [vocabulary]."""
    request = Generate(
        prompt.token_ids, uuid.uuid4().hex, plan, max_tokens=2, logprobs=WHOLE_VOCABULARY, ignore_eos=True
    )
    outputs = [output async for output in engine.generate(request)]
    report = outputs[-1].report
    if plan is not None and (report is None or report.failed_keys or not report.fills):
        raise Rejected("the oracle's prompt was not stitched: see vLLM's log (VLLM_LOGGING_LEVEL=INFO)")
    logprobs = next(output.logprobs[0] for output in outputs if output.logprobs)
    return np.array([logprobs[token] for token in range(len(logprobs))])
