"""Pages of a PDF in reading order: each with what the pages around it tell about it, such as running lines and the
labels of a table that goes on."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, repeat

import pypdfium2 as pdfium

from ingest.parse.parsed import Omissions
from ingest.parse.pdf_columns import in_reading_order
from ingest.parse.pdf_forms import Field, with_fields
from ingest.parse.pdf_grids import Grid, ruled
from ingest.parse.pdf_hidden import shown
from ingest.parse.pdf_letters import Box, Letter, letters_of, segments_of, with_raised
from ingest.parse.pdf_objects import objects_of
from ingest.parse.pdf_running import REACH, Edges, edges_of, without_running
from ingest.parse.pdf_tables import Labels, ruled_grids, with_tables

_FIRST_LINES = 5


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """A page as it is drawn: its letters in the file's order, and the grids of its lines. `number` counts from 1.
    `is_picture`: it shows something but has no words."""

    number: int
    letters: Sequence[Letter]
    box: Box
    grids: Sequence[Grid]
    edges: Edges
    is_picture: bool


def drawn_page(page: pdfium.PdfPage, number: int, fields: Sequence[Field], omissions: Omissions) -> DrawnPage:
    """A page as it is drawn, with the fields that were drawn onto it."""
    with closing(page.get_textpage()) as text_page:
        read, turn = letters_of(text_page)
        objects = objects_of(page)
        letters = with_fields(list(with_raised(shown(text_page, read, objects, turn, omissions))), fields, turn)
    box = turn.box(*page.get_bbox())
    grids = ruled_grids(*ruled(objects, turn), letters) if letters else []
    edges = edges_of(letters, box, [grid.box for grid in grids])
    has_words = any(letter.character.isalnum() for letter in letters)
    is_picture = bool(objects) and not has_words
    return DrawnPage(number, letters, box, grids, edges, is_picture)


def may_go_on(page: DrawnPage, near: Iterable[DrawnPage]) -> bool:
    """Whether a page may begin within a table: a line of its first ones, without those that run along the pages near
    it, has words far apart."""
    segments = segments_of(without_running(page.letters, page.number, {other.number: other.edges for other in near}))
    highest = sorted(segments, key=lambda segment: -segment.box.middle)[:_FIRST_LINES]
    return any(a is not b and a.box.is_beside(b.box) for a in highest for b in highest)


def in_order(pages: Iterable[DrawnPage]) -> Iterator[tuple[DrawnPage, Sequence[Letter]]]:
    """Pages that follow each other, each with its letters in reading order."""
    edges: dict[int, Edges] = {}
    labels: Labels | None = None
    waiting = deque[DrawnPage | None]()
    for following in chain(pages, repeat(None, REACH)):
        waiting.append(following)
        if following:
            edges[following.number] = following.edges
        if len(waiting) > REACH and (page := waiting.popleft()):
            letters = without_running(page.letters, page.number, edges)
            segments, labels = with_tables(letters, page.grids, labels)
            edges.pop(page.number - REACH, None)
            yield page, [letter for segment in in_reading_order(segments) for letter in segment.letters]
