"""The gate of a writer: held-out contexts read over its KV and over the plain model's, nothing recomputed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from ingest.writer.adapter import Adapter
from ingest.writer.reading import KV, Reader, Reading, Tail, distances
from ingest.writer.samples import Sample
from ingest.writer.train import Tokens
from ragkv.writer import Gate

BOOTSTRAPS = 2000


@dataclass(frozen=True, slots=True)
class _Figures:
    kl: float
    nll: float


@torch.no_grad()
def evaluate(
    reader: Reader,
    adapter: Adapter,
    tokens: Tokens,
    held_out: Sequence[Sample],
    progress: Callable[[int], None] = lambda done: None,
) -> Gate:
    """Figures over the held-out contexts. `progress` is told how many are done."""
    plain, written, alone = [], [], []
    for done, sample in enumerate(held_out, start=1):
        chunks, tails = tokens.of(sample)
        full = reader.full(sum(chunks, ()), tails)
        with adapter.disabled():
            bare: KV = reader.write(chunks)
        plain.append(_figures(full, reader.stitched(bare, tails), tails))
        written.append(_figures(full, reader.stitched(reader.write(chunks), tails), tails))
        one = chunks[:1]
        alone.append(_figures(reader.full(one[0], tails), reader.stitched(reader.write(one), tails), tails))
        progress(done)
    return Gate(
        contexts=len(held_out),
        kl=fmean(f.kl for f in written),
        plain_kl=fmean(f.kl for f in plain),
        kl_ratio_upper=ratio_upper([f.kl for f in written], [f.kl for f in plain]),
        nll=fmean(f.nll for f in written),
        plain_nll=fmean(f.nll for f in plain),
        one_chunk_kl=fmean(f.kl for f in alone),
    )


def ratio_upper(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Upper end of the 95% interval of mean(ours) / mean(theirs), paired bootstrap over contexts."""
    drawn = random.Random(0)  # noqa: S311 - an interval, not a secret
    ratios = []
    for _ in range(BOOTSTRAPS):
        rows = drawn.choices(range(len(ours)), k=len(ours))
        ratios.append(sum(ours[i] for i in rows) / max(sum(theirs[i] for i in rows), 1e-9))
    return sorted(ratios)[int(0.975 * BOOTSTRAPS)]


def _figures(full: Sequence[Reading], stitched: Sequence[Reading], tails: Sequence[Tail]) -> _Figures:
    kls = [kl.item() for kl, _ in distances(full, stitched)]
    nlls = [
        -one.logprobs[torch.arange(len(tail.answer_ids)), torch.tensor(tail.answer_ids)].mean().item()
        for one, tail in zip(stitched, tails, strict=True)
    ]
    return _Figures(fmean(kls), fmean(nlls))
