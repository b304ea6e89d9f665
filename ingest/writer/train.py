"""Trains the writer so that stitched KV reproduces full prefill's output.

Loss of a sample: KL(full prefill || stitched) over the answers' tokens, plus the distance of hidden states. After
SemPIC (arXiv 2607.28069) and C2KV (arXiv 2607.17715).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

import torch

from ingest.writer.adapter import Adapter
from ingest.writer.reading import KV, Reader, Reading, Tail, Weights, distances
from ingest.writer.samples import Sample, Samples
from ragkv.answer.prompt import PromptBuilder
from ragkv.errors import Rejected

HIDDEN_WEIGHT = 2.0
MAX_ANSWER_TOKENS = 40
WARM_UP_STEPS = 5
TOKENS_AT_ONCE = 640
"""Written with what a backward needs: two to three gigabytes with a small model."""
LEAST_RATE = 0.05
"""Learning rate at the end, as a share of the full one."""


@dataclass(frozen=True, slots=True)
class Course:
    """Length and rate of a training. It ends with the samples or with the seconds, whichever is first."""

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
        self, reader: Reader, adapter: Adapter, tokens: Tokens, course: Course, validation: Sequence[Sample]
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
        while self.samples < self._course.samples and self.seconds < self._course.seconds:
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
        weights = self._weights = self._weights or self._adapter.merged_weights()
        chunks, tails = self._tokens.of(sample)
        whole = self._reader.prefill(sum(chunks, ()))
        tails = self._reader.answered(whole, tails, MAX_ANSWER_TOKENS)
        with torch.no_grad():
            teacher = self._reader.stitched(whole, tails)
            context = self._reader.write(chunks, weights)
        for tensor in chain.from_iterable(context):
            tensor.requires_grad_()
        pairs = list(distances(teacher, self._reader.stitched(context, tails)))
        kl, hidden = (torch.stack(column).mean() for column in zip(*pairs, strict=True))
        ((kl + HIDDEN_WEIGHT * hidden) / self._course.batch).backward()  # type: ignore[no-untyped-call]
        self._write_again(chunks, context, weights)
        self.samples += 1
        if self.samples % self._course.batch == 0:
            self._update()
        return Losses(kl.item(), hidden.item())

    def _write_again(self, chunks: Sequence[tuple[int, ...]], context: KV, weights: Weights) -> None:
        """Take the gradients of a context's KV on to the adapter, a few chunks at a time: what a forward keeps for its
        backward, megabytes a token, is then bounded (gradient caching, Gao et al., arXiv 2101.06983)."""
        start = self._reader.num_prefix
        with self._adapter.followed():
            for group in grouped(chunks, TOKENS_AT_ONCE):
                end = start + sum(map(len, group))
                gradients = [
                    whole.grad[:, :, start:end] for whole in chain.from_iterable(context) if whole.grad is not None
                ]
                written = self._reader.write_behind(start, group, weights)
                torch.autograd.backward(list(chain.from_iterable(written)), gradients)
                start = end

    def _update(self) -> None:
        done = max(self.samples / self._course.samples, self.seconds / self._course.seconds)
        warm = min(1.0, self.samples / self._course.batch / WARM_UP_STEPS)
        for group in self._optimizer.param_groups:
            group["lr"] = self._course.rate * warm * max(LEAST_RATE, 1 - done)
        torch.nn.utils.clip_grad_norm_(self._adapter.parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._weights = None


def grouped(chunks: Sequence[tuple[int, ...]], tokens: int) -> Iterator[list[tuple[int, ...]]]:
    """Chunks in order, in groups of at most `tokens`, padding included, or of one chunk."""
    group: list[tuple[int, ...]] = []
    for chunk in chunks:
        if group and (len(group) + 1) * max(map(len, (*group, chunk))) > tokens:
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group
