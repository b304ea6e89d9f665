"""Measured KL to full prefill with some tokens recomputed: for the choices being compared, and for the one selected."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean

import torch

from ingest.calibrate.cover import Attention, Case, Selecting
from ingest.calibrate.reading import SelectiveReader
from ingest.writer.reading import mean_kl
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.span import Span
from ragkv.stitch.select import ChunkEvidence, Evidence, budget_of, select_random

RATIOS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)


@dataclass(frozen=True, slots=True)
class Checked:
    """KL of one case, in nats a token of the answer. `at_ratios`: the choice's, by ratio; `plain_at_ratios`: over KV of
    the plain model instead of the writer's, empty where no writer is in use."""

    choice: float
    default: float
    random: float
    at_ratios: dict[float, float]
    plain_at_ratios: dict[float, float] = field(default_factory=dict)


class StitchedCase:
    """One case over stitched KV. What is called computes under `no_grad`."""

    @torch.no_grad()
    def __init__(self, reader: SelectiveReader, case: Case, selecting: Selecting) -> None:
        self._reader = reader
        self._case = case
        self._text = sum(case.chunks, ())
        self._selecting = selecting
        self._full = reader.full(self._text, [case.tail])[0].logprobs
        self._context = reader.write(case.chunks)
        self._attention = Attention.of(reader, self._context, case.tail, selecting.spans[0].start)

    def kl_by(self, choice: Choice, ratio: float | None = None) -> float:
        """With what the choice selects recomputed: a share `ratio` of the context, or as much as `selecting` says."""
        selecting = self._selecting
        if ratio is not None:
            selecting = replace(selecting, budget=budget_of(ratio, len(self._text)))
        return self._kl(selecting.take(self._attention.scores(choice)))

    def kl_at_random(self, seed: int) -> float:
        """With as many blocks recomputed that are drawn at random."""
        chunks = tuple(map(ChunkEvidence, self._selecting.spans))
        evidence = Evidence(chunks, block_size=self._selecting.block_size, seed=seed)
        return self._kl(select_random(evidence, self._selecting.budget))

    @torch.no_grad()
    def _kl(self, spans: Sequence[Span]) -> float:
        positions = list(chain.from_iterable(range(span.start, span.end) for span in spans))
        ids = [self._text[position - self._reader.num_prefix] for position in positions]
        return mean_kl(self._full, self._reader.recomputed(self._context, positions, ids, self._case.tail)).item()


def check(stitched: StitchedCase, choice: Choice, seed: int, ratios: Sequence[float] = RATIOS) -> Checked:
    """seed: of the blocks drawn at random."""
    return Checked(
        choice=stitched.kl_by(choice),
        default=stitched.kl_by(DEFAULT_CHOICE),
        random=stitched.kl_at_random(seed),
        at_ratios={ratio: stitched.kl_by(choice, ratio) for ratio in ratios},
    )


def mean_at_ratios(rows: Sequence[dict[float, float]]) -> tuple[tuple[float, float], ...]:
    """(ratio, mean KL) over cases with the same ratios."""
    return tuple((ratio, fmean(row[ratio] for row in rows)) for ratio in rows[0])
