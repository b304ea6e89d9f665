"""Lines that run along the edges of PDF pages: headers and footers are read once, page numbers never.

A page is compared with the two before and the two after it, for left and right pages differ: so what runs along a page
is known without the others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from ingest.parse.pdf_letters import Box, Letter, Segment, rows_of, segments_of

REACH = 2
"""Pages to both sides with which one is compared."""
_MARGIN = 0.12
"""Part of a page's height at its top, and at its bottom, in which running lines stand."""
_SAME = 2.0
"""Points between two lines that stand at the same place."""
_MAX_CHARS = 300
_MAX_ROWS, _MAX_SEGMENTS = 6, 20
"""Lines of a margin, and segments of a line, that may run along pages."""
_PAGE = r"(?:p(?:age|ages|g|\.|ágina|agina|agg?\.)?|seite|s\.|side|sida|sivu|str(?:ona|\.)?|strana|pagină|стр(?:\.|аница)?|第|頁|页)"
_OF = r"\s*(?:/|of|von|de|di|af|av|из|z|／)\s*\d+"
_AT_END = re.compile(rf"^(.*?)(?:^|[\s|·•–—,/-]+)({_PAGE}\s*)?(\d{{1,5}})(?:{_OF})?\s*[|·•–—頁页-]*$", re.IGNORECASE)
_AT_START = re.compile(r"^[|·•–—-]*\s*(\d{1,5})\s*[|·•–—-]\s+(.*)$")
_PARTED = re.compile(r"(?:[|·•–—]|\s-)\s*$")
_CORNERS = 4
_ADDRESS = re.compile(r"(?:https?|file)://\S+")
_MOMENT = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4},? \d{1,2}:\d{2}(?::\d{2})?(?:\s?[AP]M)?")


class Edge(NamedTuple):
    """A segment in a page's margin: its words without the page's number, and the number."""

    words: str
    number: int | None
    box: Box
    letters: Sequence[Letter]


def edges_of(letters: Sequence[Letter], page: Box, tables: Sequence[Box]) -> list[list[list[Edge]]]:
    """The lines at the top of a page and at its bottom but for those of tables, each from the outermost on."""
    depth = _MARGIN * (page.top - page.bottom)
    high, low = page.top - depth, page.bottom + depth
    top = [letter for letter in letters if letter.box.bottom + letter.box.top > 2 * high]
    bottom = [letter for letter in letters if letter.box.bottom + letter.box.top < 2 * low]
    margins = []
    for inside, step in ((top, 1), (bottom, -1)):
        segments = [s for s in segments_of(inside) if not any(table.holds(s.box) for table in tables)]
        rows = takewhile(lambda row: len(row) <= _MAX_SEGMENTS, islice(rows_of(segments)[::step], _MAX_ROWS))
        margins.append([[_edge(segment) for segment in row] for row in rows])
    return margins


def _edge(segment: Segment) -> Edge:
    words = " ".join(segment.words[:_MAX_CHARS].split())
    number = None
    if match := _AT_END.match(words):
        title = match[1]
        if not title or match[2] or _PARTED.search(words[: match.start(3)]):
            words, number = title, int(match[3])
    elif match := _AT_START.match(words):
        words, number = match[2], int(match[1])
    return Edge(words, number, segment.box, segment.letters)


Edges = Sequence[Sequence[Sequence[Edge]]]


def without_running(letters: Sequence[Letter], number: int, edges: Mapping[int, Edges]) -> Sequence[Letter]:
    """The letters of page `number` without page numbers, nor what a browser prints in the corners, nor lines that a
    page before it has: those that are new come first, apart. A page that has nothing else stays as it is. `edges` are
    those of the pages, by number."""
    new: set[int] = set()
    dropped = {id(letter) for edge in _printed(edges[number]) for letter in edge.letters}
    for edge in _running(number, edges):
        repeats = any(_same(edge, other) for n in (1, 2) for other in _flat(edges.get(number - n, ())))
        (dropped if repeats or not edge.words else new).update(map(id, edge.letters))
    body = [letter for letter in letters if id(letter) not in dropped and id(letter) not in new]
    if not body or len(body) == len(letters):
        return letters
    apart = [letter for letter in letters if id(letter) in new]
    return [*apart, body[0]._replace(gap="\n\n"), *body[1:]] if apart else body


def _printed(edges: Edges) -> list[Edge]:
    """The corners of a page that a browser printed: its title, its address, the time and the page's number. None where
    one of the last three stands with other words."""
    corners = [edge for margin in edges for row in margin[:1] for edge in row]
    words = [edge.words for edge in corners]
    is_printed = all(any(map(pattern.fullmatch, words)) for pattern in (_ADDRESS, _MOMENT)) and "" in words
    return corners if is_printed and len(corners) <= _CORNERS else []


def _running(number: int, edges: Mapping[int, Edges]) -> Iterator[Edge]:
    """The lines of a page that another one has, too, from the outermost on up to one that none has."""
    near = [(n, _flat(edges[number + n])) for n in (-2, -1, 1, 2) if number + n in edges]
    for margin in edges[number]:
        for row in margin:
            running = [
                edge for edge in row if any(_same(edge, other, n) for n, edges_near in near for other in edges_near)
            ]
            if len(running) < len(row):
                yield from (edge for edge in running if not edge.words)
                break
            yield from row


def _flat(edges: Edges) -> list[Edge]:
    return [edge for margin in edges for row in margin for edge in row]


def _same(edge: Edge, other: Edge, distance: int | None = None) -> bool:
    """Whether both are one running line; `distance` pages lie from the one to the other."""
    if edge.words != other.words or abs(edge.box.middle - other.box.middle) > _SAME:
        return False
    if edge.number is None or other.number is None or distance is None:
        return (edge.number is None) == (other.number is None)
    return other.number - edge.number == distance
