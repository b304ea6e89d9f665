"""Utility of a context's tokens, and the share of it that a choice of layers covers.

*Utility* of a token: minus the derivative of KL(answer after full prefill || answer over stitched KV) by a gate that
moves this token's keys and values from stitched to full, with all gates at a half. *Cover* of a choice: utility of the
blocks that it selects over that of as many best ones. Unlike agreement with full prefill's own attention, it says which
layers serve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ingest.calibrate.reading import SelectiveReader, num_tokens
from ingest.writer.reading import KV, Reader, Tail, distances
from ragkv.choosing import Choice
from ragkv.span import Span
from ragkv.stitch.select import QUERIES, attention_weights, take_blocks

_GATE = 0.5
_LEAST_UTILITY = 1e-6
"""Utility of the best blocks together, in nats: below it stitching changed nothing, and any choice is as good."""


@dataclass(frozen=True, slots=True)
class Case:
    """Token ids of a context's chunks and of a question with its answer."""

    chunks: tuple[tuple[int, ...], ...]
    tail: Tail


@dataclass(frozen=True, slots=True)
class Selecting:
    """Candidates of a selection: blocks of the spans, which are the last of the context, up to a budget of tokens."""

    spans: tuple[Span, ...]
    block_size: int
    budget: int

    def take(self, scores: torch.Tensor) -> tuple[Span, ...]:
        """The best blocks. scores: [tokens of the spans] float32."""
        return take_blocks(self.spans, scores, self.block_size, self.budget)

    def share(self, taken: Sequence[Span], values: torch.Tensor) -> float:
        """The sum of values [tokens of the spans] over what was taken."""
        first = self.spans[0].start
        return sum(float(values[span.start - first : span.end - first].sum()) for span in taken)


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of a question's last queries to the tokens that may be selected, a row a layer: [layers, tokens]
    float32.

    `plain`: softmax over those tokens alone; `with_sink`: over the whole context.
    """

    plain: torch.Tensor
    with_sink: torch.Tensor

    @classmethod
    def of(cls, reader: SelectiveReader, context: KV, tail: Tail, start: int) -> "Attention":
        """start: the position of the first token that may be selected; all behind it may."""
        rows: list[tuple[torch.Tensor, torch.Tensor]] = []
        for queries, (keys, _) in zip(reader.queries(context, tail.question_ids), context, strict=True):
            seen, asking = keys[0].transpose(0, 1), queries[-QUERIES:]
            rows.append((attention_weights(asking, seen[start:]), attention_weights(asking, seen)[start:]))
        plain, with_sink = (torch.stack(column).cpu() for column in zip(*rows, strict=True))
        return cls(plain, with_sink)

    def scores(self, choice: Choice) -> torch.Tensor:
        """A score for each token, as the engine sums it. [tokens] float32."""
        weights = self.with_sink if choice.sink_aware else self.plain
        return weights[list(choice.layers_of(len(weights)))].sum(0)


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of a case: utility [tokens], and the attention that has to find it."""

    selecting: Selecting
    attention: Attention
    utility: torch.Tensor

    def cover(self, choice: Choice) -> float | None:
        """Share of the best utility that a choice of layers selects, at most 1; None where there is nothing to gain."""
        best = self.selecting.share(self.selecting.take(self.utility), self.utility)
        if best < _LEAST_UTILITY:
            return None
        return self.selecting.share(self.selecting.take(self.attention.scores(choice)), self.utility) / best


def observe(reader: SelectiveReader, case: Case, selecting: Selecting) -> Observed:
    """Runs the context twice, in full and chunk by chunk, and the question four times, once with gradients."""
    with torch.no_grad():
        stitched = reader.write(case.chunks)
    full = reader.prefill(sum(case.chunks, ()))
    start = selecting.spans[0].start
    return Observed(
        selecting,
        Attention.of(reader, stitched, case.tail, start),
        utility_of(reader, full, stitched, case.tail)[start:],
    )


def utility_of(reader: Reader, full: KV, stitched: KV, tail: Tail) -> torch.Tensor:
    """Utility of every token of the context, [tokens] float32."""
    with torch.no_grad():
        teacher = reader.stitched(full, [tail])
    gate = torch.full((num_tokens(stitched),), _GATE, device=stitched[0][0].device, requires_grad=True)
    gated = [
        (ours + gate[:, None] * (theirs - ours), values + gate[:, None] * (full_values - values))
        for (ours, values), (theirs, full_values) in zip(stitched, full, strict=True)
    ]
    [(kl, _)] = distances(teacher, reader.stitched(gated, [tail]))
    [slope] = torch.autograd.grad(kl, gate)
    return -slope.float().cpu()
