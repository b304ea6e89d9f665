"""Questions read over stitched KV and after full prefill, in plain Transformers."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import numpy as np
import torch

from bench.fidelity.report import Estimate, estimate_if
from ingest.writer.evaluate import figures_of
from ingest.writer.reading import Reader, Reading, Tail
from ingest.writer.train import MAX_ANSWER_TOKENS
from ingest.writer.trainable import TrainableAdapter
from ragkv.answer.prompt import PromptBuilder
from ragkv.evaluation.metrics import FAILURE_KL, Floats, gain_kept, ratio, resamples
from ragkv.known_questions import KnownQuestion
from ragkv.tokenizer import Tokenizer

PLAIN, WRITER = "plain", "writer"


class KVFigures(msgspec.Struct, frozen=True):
    """The known answer over stitched KV, in nats a token. kl: to full prefill."""

    kl: float
    nll: float


class StitchedQuestion(msgspec.Struct, frozen=True):
    """One question, by its line in the data and its id.

    context_tokens: of its passages. nll_none, nll_full: of the known answer without passages and after full prefill, in
    nats a token. by_kv: figures by the model that wrote the KV: PLAIN or WRITER.
    """

    line: int
    id: str
    context_tokens: int
    nll_none: float
    nll_full: float
    by_kv: dict[str, KVFigures]


class StitchingRow(msgspec.Struct, frozen=True):
    """Means over the questions with 95% intervals. kl, nll: nats a token of the known answer, kl to full prefill.

    kl_to_plain: mean kl over that of the plain model's KV. failures: percent of the questions with a kl above
    FAILURE_KL. gain_kept: share of full prefill's gain over no passages, null where it gains nothing.
    """

    kv: str
    kl: Estimate | None
    kl_to_plain: Estimate | None
    failures: Estimate | None
    gain_kept: Estimate | None
    nll: Estimate | None


class QuestionReader:
    """Reads questions over their own passages in the data's order, a chunk each, with nothing recomputed."""

    def __init__(
        self, reader: Reader, adapter: TrainableAdapter | None, prompts: PromptBuilder, tokenizer: Tokenizer
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._weights = adapter.merged_weights() if adapter else None
        self._prompts = prompts
        self._tokenizer = tokenizer

    @torch.no_grad()
    def read(self, question: KnownQuestion) -> StitchedQuestion:
        """Figures of one question, for the plain model's KV and the writer's if there is one."""
        chunks = [chunk.token_ids for chunk in question.chunks(self._tokenizer)]
        answer = self._prompts.answer_ids(question.answers[0])[:MAX_ANSWER_TOKENS]
        tails = [Tail(self._prompts.question_ids(question.text), answer)]
        full = self._reader.full(sum(chunks, ()), tails)

        def figures(reading: Sequence[Reading]) -> KVFigures:
            of = figures_of(full, reading, tails)
            return KVFigures(of.kl, of.nll)

        with self._no_writer():
            none = figures(self._reader.stitched(self._reader.write([]), tails))
            by_kv = {PLAIN: figures(self._reader.stitched(self._reader.write(chunks), tails))}
        if self._weights is not None:
            by_kv[WRITER] = figures(self._reader.stitched(self._reader.write(chunks, self._weights), tails))
        num_tokens = sum(map(len, chunks))
        return StitchedQuestion(question.line, question.id, num_tokens, none.nll, figures(full).nll, by_kv)

    def _no_writer(self) -> AbstractContextManager[Any]:
        return self._adapter.disabled() if self._adapter else nullcontext()


def rows_of(questions: Sequence[StitchedQuestion], seed: int) -> list[StitchingRow]:
    """A row for each kind of KV that was read. seed: of the intervals, a bootstrap over the questions."""
    draws = resamples(len(questions), seed)

    def estimate(figure: Callable[..., Floats], *values: Floats) -> Estimate | None:
        """A figure of means over the questions."""
        return estimate_if(figure(*(one.mean() for one in values)), figure(*(one[draws].mean(1) for one in values)))

    none = np.array([one.nll_none for one in questions])
    full = np.array([one.nll_full for one in questions])
    plain = np.array([one.by_kv[PLAIN].kl for one in questions])
    rows = []
    for kv in questions[0].by_kv:
        kl = np.array([one.by_kv[kv].kl for one in questions])
        nll = np.array([one.by_kv[kv].nll for one in questions])
        rows.append(
            StitchingRow(
                kv=kv,
                kl=estimate(np.asarray, kl),
                kl_to_plain=estimate(ratio, kl, plain),
                failures=estimate(np.asarray, 100.0 * (kl > FAILURE_KL)),
                gain_kept=estimate(gain_kept, none, nll, full),
                nll=estimate(np.asarray, nll),
            )
        )
    return rows
