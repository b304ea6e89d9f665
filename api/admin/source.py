"""The place in a document that a citation points to, mapped onto the document's chunks."""

import re
from dataclasses import dataclass

from ragkv.service.documents.listing import ChunkView

_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})(?:-([0-9a-f]{8}))?")


@dataclass(frozen=True, slots=True)
class TextRange:
    """Characters [start, end) of a document's text. `checksum`: of the words that a citation found there."""

    start: int
    end: int
    checksum: str | None = None

    @classmethod
    def of(cls, text: str) -> "TextRange | None":
        """Parse START-END or START-END-CHECKSUM; None for any other text and for an empty range."""
        match = _PLACE.fullmatch(text)
        place = cls(int(match[1]), int(match[2]), match[3]) if match else None
        return place if place and place.start < place.end else None

    def __str__(self) -> str:
        """As it was parsed."""
        return f"{self.start}-{self.end}" + (f"-{self.checksum}" if self.checksum else "")


@dataclass(frozen=True, slots=True)
class Marked:
    """A chunk with its text split around the place: `marked` is empty if the place lies outside the chunk."""

    chunk: ChunkView
    before: str
    marked: str
    after: str


def mark(chunk: ChunkView, place: TextRange | None) -> Marked:
    text = chunk.text
    if place is None or place.end <= chunk.start or chunk.end <= place.start:
        return Marked(chunk, text, "", "")
    start, end = max(place.start - chunk.start, 0), place.end - chunk.start
    return Marked(chunk, text[:start], text[start:end], text[end:])
