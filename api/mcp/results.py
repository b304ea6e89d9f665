"""Results of the tools: values for programs, and the same as text for models."""

from collections.abc import Iterable

import msgspec

from api.v1.passages import PassageView
from ragkv.answer.question import Answer, Citation
from ragkv.catalog.documents import DocumentView
from ragkv.catalog.listing import DocumentPage


class FoundPassage(msgspec.Struct, frozen=True):
    """A passage: characters [start, end) of a document's text."""

    document_id: str
    title: str
    page: int | None
    page_label: str | None
    start: int
    end: int
    score: float
    text: str


class SearchResult(msgspec.Struct, frozen=True):
    """Passages, the best first."""

    passages: list[FoundPassage]

    @classmethod
    def of(cls, passages: Iterable[PassageView]) -> "SearchResult":
        return cls([FoundPassage(*(getattr(one, name) for name in FoundPassage.__struct_fields__)) for one in passages])

    def as_text(self) -> str:
        if not self.passages:
            return "No passages: the collection has no searchable documents, or none that match the filter."
        return "\n\n".join(
            f"[{number}] {_place(one.title, one.page_label, one.document_id)}\n{one.text}"
            for number, one in enumerate(self.passages, 1)
        )


class AskResult(msgspec.Struct, frozen=True):
    """An answer, and the places in documents that support it."""

    answer: str
    finish_reason: str
    citations: tuple[Citation, ...]

    @classmethod
    def of(cls, answer: Answer) -> "AskResult":
        return cls(answer.text, answer.finish_reason, answer.citations)

    def as_text(self) -> str:
        """The answer with a number behind every part that is supported, and the sources by number."""
        numbers: dict[tuple[str, int, int], int] = {}
        sources, behind = [], []
        for one in self.citations:
            place = (one.document_id, one.start, one.end)
            if place not in numbers:
                numbers[place] = len(numbers) + 1
                sources.append(
                    f'[{numbers[place]}] {_place(one.title, one.page_label, one.document_id)}: "{one.quote}"'
                )
            behind.append((one.answer_end, numbers[place]))
        text = self.answer
        for end, number in sorted(set(behind), reverse=True):
            text = f"{text[:end]} [{number}]{text[end:]}"
        return "\n".join([text, "", "Sources:", *sources]) if sources else text


class ListResult(msgspec.Struct, frozen=True):
    """Documents, newest first. `next` is the cursor of the next page."""

    documents: list[DocumentView]
    next: str | None

    @classmethod
    def of(cls, page: DocumentPage) -> "ListResult":
        return cls(page.items, page.next)

    def as_text(self) -> str:
        lines = [_line(one) for one in self.documents] or ["No documents."]
        return "\n".join([*lines, f"More documents: cursor {self.next}"] if self.next else lines)


class AddResult(msgspec.Struct, frozen=True):
    """An accepted document. `created` is false if the collection had the same bytes already."""

    document: DocumentView
    created: bool

    def as_text(self) -> str:
        known = "Accepted" if self.created else "The collection has the same bytes already"
        return f"{known}: {_line(self.document)}\nIt can be searched once its status is searchable or ready."


def _place(title: str, page_label: str | None, document_id: str) -> str:
    return f"{', '.join(filter(None, (title, page_label)))} (document {document_id})"


def _line(document: DocumentView) -> str:
    problem = f": {document.error}" if document.error else ""
    return f"{document.name} (document {document.id}): {document.status}, {document.chunks} chunks{problem}"
