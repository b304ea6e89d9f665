"""Strength of a trained writer: the share of what training changed that it keeps.

Weights between the plain model's and the trained ones (WiSE-FT, Wortsman et al., arXiv 2109.01903, section 3) are
often as good on what was trained and better elsewhere. Of a writer, a chunk that is asked for alone shows it: its
distance from full prefill falls with the square of the strength, while that of several chunks hardly changes near 1.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import torch

from ingest.writer.adapter import Adapter
from ingest.writer.reading import Reader, Tail, distances
from ingest.writer.samples import Sample
from ingest.writer.train import Tokens
from ragkv.writer import MAX_ONE_CHUNK_KL

STRENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6)
MARGIN = 0.8
"""Share of the gate's limit for one chunk that may be used up: the gate measures on other contexts."""

Context = tuple[list[tuple[int, ...]], list[Tail]]


@torch.no_grad()
def settle(
    reader: Reader,
    adapter: Adapter,
    tokens: Tokens,
    samples: Sequence[Sample],
    progress: Callable[[float], None] = lambda strength: None,
) -> float:
    """Give a trained adapter the strength with the least KL on the samples, of those at which one chunk alone passes
    the gate with a margin, or the least strength. Returns it. `progress` is told each strength before it is tried."""
    company = [tokens.of(sample) for sample in samples]
    alone = [(chunks[:1], tails) for chunks, tails in company]
    kl_in_company, kl_alone = (_kl_of(reader, contexts) for contexts in (company, alone))
    passing = {}
    for strength in STRENGTHS:
        progress(strength)
        with adapter.at_strength(strength):
            if kl_alone() < MARGIN * MAX_ONE_CHUNK_KL:
                passing[strength] = kl_in_company()
    chosen = min(passing, key=passing.__getitem__, default=min(STRENGTHS))
    adapter.weaken(chosen)
    return chosen


def _kl_of(reader: Reader, contexts: Sequence[Context]) -> Callable[[], float]:
    """Mean KL to full prefill over KV as the writer makes it when called; the full prefills are made once."""
    teachers = [reader.full(sum(chunks, ()), tails) for chunks, tails in contexts]

    def kl() -> float:
        return fmean(
            kl.item()
            for full, (chunks, tails) in zip(teachers, contexts, strict=True)
            for kl, _ in distances(full, reader.stitched(reader.write(chunks), tails))
        )

    return kl
