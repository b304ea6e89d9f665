"""The unit of retrieval and of KV, and what a search returns."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragkv.text import page_label


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document's text with the token ids a prompt holds for it.

    `start` and `end` are character offsets into the document's text. `page`, on which it begins, counts from 1 and is
    None where the format has no pages; the next ones begin at the offsets `page_breaks` of `text`. `token_ids` are
    those of `prompt_text(title, text)`: they depend on nothing but the chunk. In chunks that were retrieved:
    `media_type`, the document's, which names their pages; `outdated`, the reason why they are from an earlier file.
    """

    id: str
    document_id: str
    ordinal: int
    title: str
    text: str
    start: int
    end: int
    page: int | None
    token_ids: tuple[int, ...]
    page_breaks: tuple[int, ...] = ()
    media_type: str = ""
    outdated: str | None = None

    def page_at(self, offset: int) -> int | None:
        """The page of a character of `text`."""
        return None if self.page is None else self.page + bisect_right(self.page_breaks, offset)

    def on_page(self, number: int | None) -> tuple[int, int]:
        """The characters [start, end) of `text` on a page; none, start == end, if it is on others. All where the format
        has no pages."""
        if number is None or self.page is None:
            return 0, len(self.text)
        bounds = (0, *self.page_breaks, len(self.text))
        index = number - self.page
        return (bounds[index], bounds[index + 1]) if 0 <= index <= len(self.page_breaks) else (0, 0)

    def page_label_at(self, offset: int = 0) -> str | None:
        """The page of a character of `text` as a reader calls it."""
        return page_label(self.media_type, self.page_at(offset))

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def shortened_to(self, offsets: Sequence[int]) -> "Chunk":
        """The chunk with the tokens at `offsets` alone. Its text stays."""
        return replace(self, token_ids=tuple(self.token_ids[offset] for offset in offsets))


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk retrieved for a question. `score` orders passages of one search; `hop` counts from 1."""

    chunk: Chunk
    score: float
    hop: int

    @property
    def relevance(self) -> float:
        return relevance_of(self.score)


def relevance_of(score: float) -> float:
    """The score on a scale from 0 to 1, in the same order: 0.5 for what all rankings put first."""
    positive = max(score, 0.0)  # a question without words has cosines
    return positive / (1 + positive)


def prompt_text(title: str, text: str) -> str:
    """Text of a chunk in a prompt. No number, no position: its KV is the same in every prompt."""
    return f"Title: {title}\n{text}\n\n"
