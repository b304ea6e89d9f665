"""Trains the writer so that stitched KV reproduces full prefill's output.

Loss of a sample: KL(full prefill || stitched) over the answers' tokens, plus the distance of hidden states, after
SemPIC (arXiv 2607.28069) and C2KV (arXiv 2607.17715); and the same of its first chunk alone, whose plain KV is exact.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any, cast

import torch

from bench.writer.reading import KV, TOKENS_AT_ONCE, Reader, Reading, Tail, Weights, distances, grouped
from bench.writer.samples import Sample, Samples
from bench.writer.trainable import TrainableAdapter
from ragkv.answer.prompt import PromptBuilder
from ragkv.errors import Rejected

HIDDEN_WEIGHT = 2.0
MAX_ANSWER_TOKENS = 40
WARM_UP_STEPS = 5
KEPT_BYTES = 4 << 30
"""Memory for what the writing of a whole context keeps for its backward."""
LEAST_RATE = 0.05
"""Learning rate at the end, as a share of the full one."""


@dataclass(frozen=True, slots=True)
class Course:
    """Length and rate of a training. It ends with the samples or, after a whole batch, with the seconds, whichever is
    first."""

    samples: int
    seconds: float
    rate: float = 1e-3
    batch: int = 2


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of samples, as prompts hold them."""

    prompts: PromptBuilder

    def of(self, sample: Sample) -> tuple[list[tuple[int, ...]], list[Tail]]:
        """The chunks and the tails."""
        chunks = [chunk.token_ids for chunk in sample.chunks]
        tails = [
            Tail(self.prompts.question_ids(question), self.prompts.answer_ids(answer)[:MAX_ANSWER_TOKENS])
            for question, answer in sample.tails
        ]
        return chunks, tails


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over a sample's tails."""

    kl: float
    hidden: float


class Trainer:
    """One run. `validation`: samples that are never trained on."""

    def __init__(
        self, reader: Reader, adapter: TrainableAdapter, tokens: Tokens, course: Course, validation: Sequence[Sample]
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._tokens = tokens
        self._course = course
        self._validation = validation
        self._teachers: dict[tuple[int, bool], list[Reading]] = {}
        self._optimizer = torch.optim.AdamW(adapter.parameters, lr=course.rate, betas=(0.9, 0.98), weight_decay=0.0)
        self._weights: Weights | None = None  # merged: a copy of the model, made for the first step
        self.samples = 0
        self.seconds = 0.0

    def run(self, samples: Samples, progress: Callable[[int, Losses], None]) -> None:
        """Train to the end of the course. `progress` is told after every sample."""
        course = self._course
        while self.samples < course.samples and (self.seconds < course.seconds or self.samples % course.batch):
            began = time.monotonic()
            losses = self._step(samples.next())
            self.seconds += time.monotonic() - began
            progress(self.samples, losses)

    def state(self) -> dict[str, Any]:
        """State for `resume`, to be written with torch.save."""
        return {
            "weights": [parameter.detach() for parameter in self._adapter.parameters],
            "optimizer": self._optimizer.state_dict(),
            "rate": self._course.rate,
            "samples": self.samples,
            "seconds": self.seconds,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from where a run was. Raises Rejected for a run at another rate."""
        if (rate := state.get("rate", self._course.rate)) != self._course.rate:
            raise Rejected(
                f"the training began with --learning-rate {rate:g}: continue with that, or choose another folder"
            )
        with torch.no_grad():
            for parameter, value in zip(self._adapter.parameters, state["weights"], strict=True):
                parameter.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        self.samples, self.seconds = state["samples"], state["seconds"]

    def validate(self, *, alone: bool = False) -> Losses:
        """Means over the validation samples, or over the first chunk of each alone, written as at ingestion: with
        merged weights."""
        rows = []
        with torch.no_grad():
            weights = self._adapter.merged_weights()
            for index, sample in enumerate(self._validation):
                chunks, tails = self._tokens.of(sample)
                chunks = chunks[:1] if alone else chunks
                if (index, alone) not in self._teachers:
                    self._teachers[index, alone] = self._reader.full(sum(chunks, ()), tails)
                student = self._reader.stitched(self._reader.write(chunks, weights), tails)
                rows += [(kl.item(), hidden.item()) for kl, hidden in distances(self._teachers[index, alone], student)]
        kls, hiddens = zip(*rows, strict=True)
        return Losses(fmean(kls), fmean(hiddens))

    def _step(self, sample: Sample) -> Losses:
        # The same merged weights for all samples of a batch: they change with the optimiser's step alone.
        weights = self._weights = self._weights or self._adapter.merged_weights()
        chunks, tails = self._tokens.of(sample)
        whole = self._reader.prefill(sum(chunks, ()))
        tails = self._reader.answered(whole, tails, MAX_ANSWER_TOKENS)
        with torch.no_grad():
            teacher = self._reader.stitched(whole, tails)
        writing = _Writing(self._reader, self._adapter, chunks, weights)
        kl, hidden = _means(teacher, self._reader.stitched(writing.context(chunks), tails))
        loss = kl + HIDDEN_WEIGHT * hidden
        # The first chunk alone, whose plain KV is exact: what a writer gains for several chunks may not spoil it.
        if len(chunks) > 1:
            alone = chunks[:1]
            teacher = self._reader.full(alone[0], tails)
            kl_alone, hidden_alone = _means(teacher, self._reader.stitched(writing.context(alone), tails))
            loss = loss + kl_alone + HIDDEN_WEIGHT * hidden_alone
        # Backward in two parts: from the loss to the chunks' KV, where gradients stop, then from there to the adapter.
        (loss / self._course.batch).backward()  # type: ignore[no-untyped-call]
        writing.backward()
        self.samples += 1
        if self.samples % self._course.batch == 0:
            self._update()
        return Losses(kl.item(), hidden.item())

    def _update(self) -> None:
        # The rate rises over the first steps and falls to LEAST_RATE at the limit, samples or seconds, that is nearer.
        done = max(self.samples / self._course.samples, self.seconds / self._course.seconds)
        warm = min(1.0, self.samples / self._course.batch / WARM_UP_STEPS)
        for group in self._optimizer.param_groups:
            group["lr"] = self._course.rate * warm * max(LEAST_RATE, 1 - done)
        torch.nn.utils.clip_grad_norm_(self._adapter.parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._weights = None


def _means(teacher: Sequence[Reading], student: Sequence[Reading]) -> list[torch.Tensor]:
    """KL and the distance of hidden states, means over the tails."""
    return [torch.stack(column).mean() for column in zip(*distances(teacher, student), strict=True)]


class _Writing:
    """A context that is written for a training step, and the way of its gradients back to the adapter.

    A forward keeps megabytes a token for its backward. A context for which that is at most KEPT_BYTES is written once.
    A longer one is written without gradients and then once more, a group of chunks at a time, so that memory stays
    bounded (gradient caching, Gao et al., arXiv 2101.06983).
    """

    def __init__(
        self, reader: Reader, adapter: TrainableAdapter, chunks: Sequence[tuple[int, ...]], weights: Weights
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._chunks = chunks
        self._weights = weights
        self._starts = reader.starts(chunks)
        self._groups = list(grouped(chunks, TOKENS_AT_ONCE))
        self._is_kept = sum(map(len, chunks)) * adapter.bytes_a_token <= KEPT_BYTES
        self._written: dict[int, KV] = {}
        with adapter.followed() if self._is_kept else torch.no_grad():
            for group in self._groups:
                self._written.update(zip(group, self._write(group), strict=True))
        # Copies of the KV outside the graph: the loss's backward leaves its gradients on them, `backward` reads them.
        self._leaves = {
            index: [(keys.detach().requires_grad_(), values.detach().requires_grad_()) for keys, values in piece]
            for index, piece in self._written.items()
        }

    def context(self, chunks: Sequence[tuple[int, ...]]) -> KV:
        """KV of the prefix and of the first chunks. Its gradients stop at the chunks', until `backward` takes them
        on."""
        return self._reader.stitch([self._leaves[index] for index in range(len(chunks))])

    def backward(self) -> None:
        """Take the gradients of the context's KV on to the adapter's matrices."""
        for group in self._groups:
            if self._is_kept:
                pieces = [self._written.pop(index) for index in group]
            else:
                with self._adapter.followed():
                    pieces = self._write(group)
            leaves = chain.from_iterable(chain.from_iterable(self._leaves[index]) for index in group)
            gradients = [cast("torch.Tensor", leaf.grad) for leaf in leaves]
            torch.autograd.backward([tensor for piece in pieces for tensor in chain.from_iterable(piece)], gradients)

    def _write(self, group: Sequence[int]) -> list[KV]:
        starts, chunks = [self._starts[index] for index in group], [self._chunks[index] for index in group]
        return self._reader.write_at(starts, chunks, self._weights)
