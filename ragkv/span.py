"""Spans: ranges of token positions in a prompt."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""A token's, or its id."""


class Span(msgspec.Struct, frozen=True, order=True, array_like=True, forbid_unknown_fields=True):
    """Token positions [start, end) of one prompt."""

    start: Position
    end: Position

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a span: [{self.start}, {self.end})")

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    def clipped_to(self, region: "Span") -> "Span":
        """The part of it that lies in the region; without any, an empty span at the region's edge."""
        start = min(max(self.start, region.start), region.end)
        return Span(start, max(start, min(self.end, region.end)))

    def blocks(self, block_size: int) -> slice:
        """The blocks that hold it whole, of those that tile the prompt."""
        return slice(self.start // block_size, -(-self.end // block_size))


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same positions in ascending order, overlapping and touching spans joined, empty ones dropped."""
    merged: list[Span] = []
    for span in sorted(s for s in spans if s.num_tokens):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def total_tokens(spans: Iterable[Span]) -> int:
    """Positions covered by disjoint spans."""
    return sum(span.num_tokens for span in spans)


def tokens_within(spans: Sequence[Span], region: Span) -> int:
    """Positions of a region that ascending, disjoint spans cover. Looks at no others."""
    start = bisect_right(spans, region.start, key=lambda span: span.end)
    last = bisect_left(spans, region.end, key=lambda span: span.start)
    return total_tokens(span.clipped_to(region) for span in spans[start:last])


def split(spans: Sequence[Span], max_tokens: int, max_spans: int) -> tuple[list[Span], list[Span]]:
    """Ascending spans as the first of them, `max_tokens` and `max_spans` at most, and the rest."""
    part: list[Span] = []
    room = max_tokens
    for index, span in enumerate(spans):
        if not room or len(part) == max_spans:
            return part, list(spans[index:])
        end = min(span.end, span.start + room)
        part.append(Span(span.start, end))
        room -= end - span.start
        if end < span.end:
            return part, [Span(end, span.end), *spans[index + 1 :]]
    return part, []
