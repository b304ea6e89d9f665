"""The evaluation that a writer must pass: held-out contexts read over its KV and over the plain model's, with
nothing recomputed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from bench.writer.corpus import digest_of, known_of_file, read_record
from bench.writer.reading import KV, Reader, Reading, Tail, distances, load_model
from bench.writer.samples import Sample
from bench.writer.train import Tokens
from bench.writer.trainable import TrainableAdapter
from ragkv.errors import Rejected
from ragkv.prefill.writer import Gate, read_whole
from ragkv.service.evaluations.metrics import interval, resamples
from ragkv.service.parts import Parts

_LEAST_KL = 1e-9


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the tails of a context, in nats a token of the answers. kl: to full prefill."""

    kl: float
    nll: float


@torch.no_grad()
def evaluate(
    reader: Reader,
    adapter: TrainableAdapter,
    tokens: Tokens,
    held_out: Sequence[Sample],
    progress: Callable[[int], None] = lambda done: None,
) -> Gate:
    """Figures over the held-out contexts, written as at ingestion: with merged weights. `progress` is told how many are
    done."""
    weights = adapter.merged_weights()
    plain, written, alone = [], [], []
    for done, sample in enumerate(held_out, start=1):
        chunks, tails = tokens.of(sample)
        full = reader.full(sum(chunks, ()), tails)
        with adapter.disabled():
            bare: KV = reader.write(chunks)
        plain.append(figures_of(full, reader.stitched(bare, tails), tails))
        written.append(figures_of(full, reader.stitched(reader.write(chunks, weights), tails), tails))
        first_chunk = chunks[:1]
        alone.append(
            figures_of(
                reader.full(first_chunk[0], tails), reader.stitched(reader.write(first_chunk, weights), tails), tails
            )
        )
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


def evaluate_known(
    folder: Path, data: Path, limit: int, parts: Parts, progress: Callable[[int], None], *, float32: bool
) -> Gate:
    """Figures of the writer in `folder` over the first known questions of a file, at most `limit`, without those of
    which it was trained on every passage. Raises Rejected for data that cannot be read, for none that are left and for
    a writer of another model, NotFound for no writer."""
    trained_on = read_record(folder)
    samples = known_of_file(data, parts.tokenizer)
    held_out = [sample for sample in samples if not trained_on.issuperset(map(digest_of, sample.chunks))][:limit]
    if not held_out:
        raise Rejected(f"{data}: the writer was trained on the passages of all these questions: give others")
    if read_whole(folder).model_fingerprint != parts.model_fingerprint:
        raise Rejected(f"{folder}: it is for another model")
    model = load_model(parts.model_folder, torch.float32 if float32 else parts.layout.dtype)
    adapter = TrainableAdapter.load(model, folder)
    reader = Reader(model, adapter, parts.prompts.prefix_ids)
    return evaluate(reader, adapter, Tokens(parts.prompts), held_out, progress)


def ratio_upper(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Upper end of the 95% interval of mean(ours) / mean(theirs), paired bootstrap over contexts."""
    mine, reference = np.array([ours, theirs])[:, resamples(len(ours), 0)].sum(-1)
    around = interval(mine / np.maximum(reference, _LEAST_KL))
    assert around is not None, "KLs are numbers"
    return around[1]


def figures_of(full: Sequence[Reading], stitched: Sequence[Reading], tails: Sequence[Tail]) -> Figures:
    """Figures of readings of the same tails after full prefill and over stitched KV."""
    kls = [kl.item() for kl, _ in distances(full, stitched)]
    nlls = [
        -reading.logprobs[torch.arange(len(tail.answer_ids)), torch.tensor(tail.answer_ids)].mean().item()
        for reading, tail in zip(stitched, tails, strict=True)
    ]
    return Figures(fmean(kls), fmean(nlls))
