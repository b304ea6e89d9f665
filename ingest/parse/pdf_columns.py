"""Columns of prose on a PDF page, where the file draws them line by line, across all columns.

A stretch of columns is rows between which stripes stay white from the first to the last; a row across all of them ends
it. Where the file draws one column after the other, its order stays, unless equal columns come from the right.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from ingest.parse.pdf_letters import Box, Segment, around, rows_of

_GUTTER = 0.9
"""Heights of a line between two columns."""
_PROSE = 6.0
"""Heights of a line that a line of prose is wide."""
_LEAST_ROWS, _LEAST_WORDS, _LEAST_GOING_ON = 4, 3, 0.4
"""Of a column of prose; the last is the part of its lines that do not begin with a capital or a digit."""
_SETTLED = 3
"""Rows after which columns no longer merge."""
_FAR = 2.5
"""Heights of a line between rows: where a stretch of columns ends on one side."""
_EQUAL = 0.15
_MAX_SEGMENTS = 2_000

Span = tuple[float, float]


def in_reading_order(segments: Sequence[Segment]) -> Sequence[Segment]:
    """The segments, those of columns one column after the other."""
    if len(segments) > _MAX_SEGMENTS:
        return segments
    places = {id(segment): place for place, segment in enumerate(segments)}
    for rows, spans in _stretches(rows_of(segments)):
        columns = [
            [part for row in rows if (part := [item for item in row if left <= item.box.left < right])]
            for left, right in spans
        ]
        if _are_prose(columns) and (order := _order(columns, places)):
            inside = {id(segment) for column in columns for row in column for segment in row}
            begin = next(place for place, segment in enumerate(segments) if id(segment) in inside)
            preceding, after = (
                [segment for segment in part if id(segment) not in inside]
                for part in (segments[:begin], segments[begin:])
            )
            lines = [line for number in order for line in _lines(columns[number])]
            segments = [*preceding, *lines, *(after[0].after("\n"), *after[1:])] if after else [*preceding, *lines]
    return segments


def _stretches(rows: Sequence[list[Segment]]) -> Iterator[tuple[Sequence[list[Segment]], list[Span]]]:
    """Rows of columns, and from where to where each column reaches."""
    begin = last = 0
    while begin < len(rows):
        # Rows of columns that stand at other heights have one segment each.
        start, end, spans = begin, begin + 1, _merged([], rows[begin])
        if len(spans) == 1 and begin + 1 < len(rows) and _distance(rows[begin], rows[begin + 1]) <= _FAR:
            end, spans = begin + 2, _merged(spans, rows[begin + 1])
        if len(spans) == 1:
            begin += 1
            continue
        while end < len(rows):
            merged = _merged(spans, rows[end])
            if len(merged) == 1 or (len(merged) < len(spans) and end - begin >= _SETTLED):
                break
            if len(rows[end]) == 1 and _distance(rows[end - 1], rows[end]) > _FAR:
                break
            spans, end = merged, end + 1
        while start > last and _distance(rows[start - 1], rows[start]) <= _FAR:
            merged = _merged(spans, rows[start - 1])
            if len(merged) != len(spans):  # else the row above goes on with columns that begin below it
                break
            spans, start = merged, start - 1
        yield rows[start:end], spans
        begin = last = end


def _distance(above: list[Segment], row: list[Segment]) -> float:
    """Between the middles of two rows, in heights of a line."""
    return (above[0].box.middle - row[0].box.middle) / (row[0].box.height or 1)


def _merged(spans: Iterable[Span], row: Sequence[Segment]) -> list[Span]:
    """The spans with those of a row, joined where no gutter parts them."""
    least = _GUTTER * median(segment.box.height for segment in row)
    merged: list[Span] = []
    for left, right in sorted([*spans, *((segment.box.left, segment.box.right) for segment in row)]):
        if merged and left - merged[-1][1] < least:
            merged[-1] = merged[-1][0], max(merged[-1][1], right)
        else:
            merged.append((left, right))
    return merged


def _are_prose(columns: Sequence[Sequence[Sequence[Segment]]]) -> bool:
    for column in columns:
        boxes = [around(segment.box for segment in row) for row in column]
        words = median(sum(len(segment.words.split()) for segment in row) for row in column)
        height = median(box.height for box in boxes)
        if len(column) < _LEAST_ROWS or words < _LEAST_WORDS or median(map(_width, boxes)) < _PROSE * height:
            return False
        starts = [row[0].letters[0].character for row in column]
        going_on = sum(start.isalpha() and not start.isupper() for start in starts)
        if going_on < _LEAST_GOING_ON * (len(column) - 1):
            return False
    return True


def _width(box: Box) -> float:
    return box.right - box.left


def _order(columns: Sequence[Sequence[Sequence[Segment]]], places: dict[int, int]) -> list[int]:
    """The columns in the order in which they are read, if the file has another."""
    drawn = sorted(
        (places[id(segment)], number) for number, column in enumerate(columns) for row in column for segment in row
    )
    visits = [number for _, number in drawn]
    switches = sum(number != other for number, other in pairwise(visits))
    from_left = list(range(len(columns)))
    lines = sorted(map(len, columns))[-2]
    if switches >= lines:
        return from_left[::-1] if _runs_from_right(columns) else from_left
    widths = [_width(around(segment.box for row in column for segment in row)) for column in columns]
    is_even = max(widths) - min(widths) <= _EQUAL * max(widths)
    is_reversed = switches == len(columns) - 1 and visits[0] == from_left[-1]
    return from_left if is_reversed and is_even and not _runs_from_right(columns) else []


def _runs_from_right(columns: Sequence[Sequence[Sequence[Segment]]]) -> bool:
    letter = columns[0][0][0].letters[0]
    return unicodedata.bidirectional(letter.character[:1]) in {"R", "AL"}


def _lines(column: Sequence[Sequence[Segment]]) -> Iterator[Segment]:
    """The segments of a column, a row a line; a hyphen at its end is marked as PDFium marks it."""
    rows = [list(row) for row in column]
    for row, following in pairwise(rows):
        *words, end = row[-1].letters
        is_cut = end.character == "-" and words and words[-1].character.isalpha()
        if is_cut and following[0].letters[0].character.islower():
            row[-1] = Segment([*words, end._replace(character="\ufffe")], row[-1].box)
    for row in rows:
        yield row[0].after("\n\n" if row[0].is_table else "\n")
        yield from (segment.after(" ") for segment in row[1:])
