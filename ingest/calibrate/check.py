"""The check of a choice: real KL to full prefill, with what it selects recomputed, against the default and blocks at random."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log
from statistics import fmean

import torch

from ingest.calibrate.choose import interval_of
from ingest.calibrate.cover import Attention, Case, Selecting
from ingest.calibrate.reading import SelectiveReader
from ingest.writer.reading import mean_kl
from ragkv.calibration import Ratio
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.span import Span
from ragkv.stitch.select import ChunkEvidence, Evidence, budget_of, select_random

RATIOS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
KL_FLOOR = 1e-4
"""What lies below it is rounding."""


@dataclass(frozen=True, slots=True)
class Checked:
    """KL of one case, in nats a token of the answer. `at_ratios`: the choice's, by ratio."""

    choice: float
    default: float
    random: float
    at_ratios: dict[float, float]


@torch.no_grad()
def check(
    reader: SelectiveReader,
    case: Case,
    selecting: Selecting,
    choice: Choice,
    seed: int,
    ratios: Sequence[float] = RATIOS,
) -> Checked:
    """seed: of the blocks drawn at random."""
    text = sum(case.chunks, ())
    context = reader.write(case.chunks)
    [full] = reader.full(text, [case.tail])
    attention = Attention.of(reader, context, case.tail, selecting.spans[0].start)

    def kl(spans: Sequence[Span]) -> float:
        positions = list(chain.from_iterable(range(span.start, span.end) for span in spans))
        ids = [text[position - reader.num_prefix] for position in positions]
        other = reader.recomputed(context, positions, ids, case.tail)
        return mean_kl(full.logprobs, other).item()

    evidence = Evidence(tuple(map(ChunkEvidence, selecting.spans)), block_size=selecting.block_size, seed=seed)
    scores = attention.scores(choice)
    at_ratios = {ratio: replace(selecting, budget=budget_of(ratio, len(text))) for ratio in ratios}
    return Checked(
        choice=kl(selecting.take(scores)),
        default=kl(selecting.take(attention.scores(DEFAULT_CHOICE))),
        random=kl(select_random(evidence, selecting.budget)),
        at_ratios={ratio: kl(each.take(scores)) for ratio, each in at_ratios.items()},
    )


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The geometric mean of ours / theirs, paired by case: one case in thirteen can make a mean of KLs."""
    logs = [log(max(one, KL_FLOOR)) - log(max(other, KL_FLOOR)) for one, other in zip(ours, theirs, strict=True)]
    around = interval_of(logs)
    return Ratio(exp(around.mean), exp(around.low), exp(around.high))


def mean_at_ratios(checked: Sequence[Checked]) -> tuple[tuple[float, float], ...]:
    """(ratio, mean KL) of the choice."""
    return tuple((ratio, fmean(one.at_ratios[ratio] for one in checked)) for ratio in checked[0].at_ratios)
