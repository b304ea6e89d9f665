"""The result of parsing any format: one text, the positions of its pages and headings, counts of what is left out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from ingest.parse.scan import ScannedPage

MAX_TEXT_CHARS = 64 * 1024 * 1024
MAX_TITLE_CHARS = 300
MAX_PAGES = 20_000
MAX_SECTIONS = 300_000
MAX_ATTACHMENTS = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """Characters [start, end) of the text are page `number`, counted from 1. An empty page has start == end."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """A heading. It begins at character `start`; what follows it begins at `body`; `level` 1 is the outermost."""

    start: int
    body: int
    title: str
    level: int

    @property
    def is_cut(self) -> bool:
        """Whether the title may lack words of the heading."""
        return len(self.title) >= MAX_TITLE_CHARS - 1  # a space may have stood at its end


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file inside the document, read as a separate document. Neither name nor body is empty."""

    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Words that the author hid, and characters of pictures and other files that were written as text (base64)."""

    hidden_words: int = 0
    encoded_chars: int = 0


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document as text. Offsets of `pages` and `sections` are characters of `text`, both in ascending order.

    `text` is NFC, has line feeds for line ends and holds no control, invisible or unassigned characters. `pages` is
    empty where the format has none, `sections` where there are no headings. `scans`: those of the pages that were read
    by OCR, in ascending order.
    """

    title: str
    text: str
    pages: Annotated[tuple[Page, ...], Meta(max_length=MAX_PAGES)]
    media_type: str
    sections: Annotated[tuple[Section, ...], Meta(max_length=MAX_SECTIONS)] = ()
    scans: Annotated[tuple[ScannedPage, ...], Meta(max_length=MAX_PAGES)] = ()
    attachments: Annotated[tuple[Attachment, ...], Meta(max_length=MAX_ATTACHMENTS)] = ()
    left_out: LeftOut = field(default_factory=LeftOut)


def one_line(text: str) -> str:
    """Text fit for a title: one line, single spaces, bounded length."""
    return " ".join(text.split())[:MAX_TITLE_CHARS].strip()


def leading_title(sections: tuple[Section, ...]) -> str | None:
    """The title that the headings give a document: the first one, if no other stands as high."""
    if not sections:
        return None
    title_section = sections[0]
    following = sections[1:]
    return title_section.title if all(s.level > title_section.level for s in following) else None


def heading_paths(sections: tuple[Section, ...]) -> Iterator[tuple[str, ...]]:
    """The titles that lead to each heading, outermost first, the heading's last."""
    open_sections: list[Section] = []
    for section in sections:
        while open_sections and open_sections[-1].level >= section.level:
            open_sections.pop()
        open_sections.append(section)
        yield tuple(s.title for s in open_sections)


class Omissions:
    """Counts what readers leave out of one document. keeps_hidden: words that the author hid are read like others."""

    def __init__(self, *, keeps_hidden: bool = False) -> None:
        self.keeps_hidden = keeps_hidden
        self.left_out = LeftOut()

    def leaves_out(self, text: str) -> bool:
        """Whether a text that the author hid is not read. Its words are counted then."""
        if not self.keeps_hidden:
            self.include(LeftOut(hidden_words=len(text.split())))
        return not self.keeps_hidden

    def hidden(self, text: str) -> str:
        """The part of a text that is read although the author hid it: all of it or, counted, none."""
        return "" if self.leaves_out(text) else text

    def encoded(self, num_chars: int) -> None:
        """Count characters that are no text but an encoded file."""
        self.include(LeftOut(encoded_chars=num_chars))

    def include(self, left_out: LeftOut) -> None:
        """Count what was left out of a part of the document that was read separately."""
        hidden_words = self.left_out.hidden_words + left_out.hidden_words
        self.left_out = LeftOut(hidden_words, self.left_out.encoded_chars + left_out.encoded_chars)
