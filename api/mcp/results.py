"""Results of the tools: values for programs, and the same as text for models."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Protocol

import msgspec

from api.v1.passages import PassageView
from ragkv.answer.question import Answer, Citation
from ragkv.service.base.page import Page, view_from
from ragkv.service.base.status import Status
from ragkv.service.data_sources.data_sources import DataSourceView, SourceFileView
from ragkv.service.documents.cited import CitedPage, checksum_of
from ragkv.service.documents.documents import DocumentView
from ragkv.service.evaluations.outcome import EvaluationReport, EvaluationRun, MeasuredQuestion
from ragkv.service.files.stores import Store
from ragkv.service.questions.feedback import Feedback
from ragkv.text import plural

_SHOWN_QUESTIONS = 5


class Result(Protocol):
    """Result of a tool: a struct that has a text too."""

    def as_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Pictured:
    """A result with a picture beside it, as PNG."""

    result: Result
    png: bytes

    def as_text(self) -> str:
        return self.result.as_text()


class FoundPassage(msgspec.Struct, frozen=True):
    """A passage: characters [start, end) of a document's text. `checksum`: of its words, for `read_page`. `outdated`:
    the reason why they are from an earlier file."""

    document_id: str
    title: str
    page: int | None
    page_label: str | None
    start: int
    end: int
    checksum: str
    score: float
    text: str
    outdated: str | None


class SearchResult(msgspec.Struct, frozen=True):
    """Passages, the best first. `note`: where there are documents, if the collection has none."""

    passages: list[FoundPassage]
    note: str | None = None

    @classmethod
    def of(cls, passages: Iterable[PassageView], note: str | None) -> "SearchResult":
        return cls([view_from(FoundPassage, passage) for passage in passages], note)

    def as_text(self) -> str:
        if not self.passages:
            return f"No passages: {self.note or 'no document matches the filter.'}"
        return "\n\n".join(
            f"[{number}] {_place(passage.title, passage.page_label, passage.document_id, passage.outdated)}\n{passage.text}"
            for number, passage in enumerate(self.passages, 1)
        )


class CitedWords(msgspec.Struct, frozen=True):
    """A citation: characters [start, end) of a document's text support characters [answer_start, answer_end) of the
    answer. `checksum`: of the quote, for `read_page`. `outdated`: the reason why it is from an earlier file."""

    answer_start: int
    answer_end: int
    chunk_id: str
    document_id: str
    title: str
    page: int | None
    page_label: str | None
    start: int
    end: int
    checksum: str
    quote: str
    outdated: str | None

    @classmethod
    def of(cls, citation: Citation) -> "CitedWords":
        return cls(**asdict(citation), checksum=checksum_of(citation.quote))


class AskResult(msgspec.Struct, frozen=True):
    """An answer, and the places in documents that support it. `note`: where there are documents, if the collection has
    none."""

    answer_id: str
    answer: str
    finish_reason: str
    citations: tuple[CitedWords, ...]
    note: str | None = None

    @classmethod
    def of(cls, answer: Answer, note: str | None) -> "AskResult":
        return cls(answer.id, answer.text, answer.finish_reason, tuple(map(CitedWords.of, answer.citations)), note)

    def as_text(self) -> str:
        """The answer with a number behind every part that is supported, and the sources by number."""
        numbers: dict[tuple[str, int, int], int] = {}
        sources, behind = [], []
        for citation in self.citations:
            place = (citation.document_id, citation.start, citation.end)
            if place not in numbers:
                numbers[place] = len(numbers) + 1
                source = _place(citation.title, citation.page_label, citation.document_id, citation.outdated)
                sources.append(f'[{numbers[place]}] {source}: "{citation.quote}"')
            behind.append((citation.answer_end, numbers[place]))
        text = self.answer
        for end, number in sorted(set(behind), reverse=True):
            text = f"{text[:end]} [{number}]{text[end:]}"
        listed = ["", "Sources:", *sources] if sources else []
        return "\n".join([text, *filter(None, (self.note,)), *listed, "", f"Answer {self.answer_id}"])


class CollectionFacts(msgspec.Struct, frozen=True):
    """A collection and the numbers of its documents: of all, of those that can be searched, and, among these, of those
    whose KV is stored."""

    id: str
    name: str
    documents: int
    searchable: int
    ready: int

    @classmethod
    def of(cls, store: Store) -> "CollectionFacts":
        statuses = store.statuses
        return cls(store.id, store.name, statuses.total(), store.num_searchable, statuses[Status.READY])


class CollectionsResult(msgspec.Struct, frozen=True):
    """Collections, newest first. `next` is the cursor of the next page."""

    collections: list[CollectionFacts]
    next: str | None

    @classmethod
    def of(cls, page: Page[Store]) -> "CollectionsResult":
        return cls(list(map(CollectionFacts.of, page.items)), page.items[-1].id if page.more else None)

    def as_text(self) -> str:
        lines = [
            f"{facts.name}: {plural(facts.documents, 'document')}, {facts.searchable} searchable, {facts.ready} ready"
            for facts in self.collections
        ]
        return "\n".join([*lines, f"More collections: cursor {self.next}"] if self.next else lines)


class ListResult(msgspec.Struct, frozen=True):
    """Documents, newest first, and the names of their collections by id. `next` is the cursor of the next page."""

    documents: list[DocumentView]
    next: str | None
    collections: dict[str, str]

    def as_text(self) -> str:
        names = self.collections
        lines = [_line(document, names.get(document.collection_id)) for document in self.documents]
        lines = lines or ["No documents."]
        return "\n".join([*lines, f"More documents: cursor {self.next}"] if self.next else lines)


class AddResult(msgspec.Struct, frozen=True):
    """An accepted document. `created` is false if the collection had the same bytes already."""

    document: DocumentView
    created: bool

    def as_text(self) -> str:
        outcome = "Accepted" if self.created else "The collection already has the same bytes"
        return f"{outcome}: {_line(self.document)}\nIt can be searched once its status is searchable or ready."


class ReadResult(msgspec.Struct, frozen=True):
    """The cited words between the text of their page, or the text around them where the format has no pages."""

    document_id: str
    name: str
    page: int | None
    page_label: str | None
    before: str
    cited: str
    after: str
    outdated: str | None

    @classmethod
    def of(cls, document_id: str, page: CitedPage) -> "ReadResult":
        return view_from(cls, page, document_id=document_id)

    def as_text(self) -> str:
        """The cited words stand between <mark> and </mark>."""
        shown = f"{self.before}<mark>{self.cited}</mark>{self.after}"
        return f"{_place(self.name, self.page_label, self.document_id, self.outdated)}\n\n{shown}"


class RateResult(msgspec.Struct, frozen=True):
    """The feedback that an answer has now."""

    answer_id: str
    feedback: Feedback

    def as_text(self) -> str:
        corrected = f", corrected to {self.feedback.correction!r}" if self.feedback.correction else ""
        return f"Answer {self.answer_id} is rated {self.feedback.rating}{corrected}."


class SourceResult(msgspec.Struct, frozen=True):
    """Data sources, and files of them that could not be read, with the reasons: at most 50 of each."""

    data_sources: list[DataSourceView]
    failed_files: list[SourceFileView]

    def as_text(self) -> str:
        lines = []
        for source in self.data_sources:
            files, problem = source.files, f" ({source.error})" if source.error else ""
            lines.append(
                f"{source.location} (data source {source.id}): {source.status}{problem}, {files.searchable + files.ready} files "
                f"read, {files.waiting} waiting, {files.failed + files.unreadable} failed, {files.skipped} skipped"
            )
        failures = [f"{file.key}: {file.status}: {file.error}" for file in self.failed_files]
        return "\n".join([*(lines or ["No data sources."]), *failures])


class EvaluationResult(msgspec.Struct, frozen=True):
    """An evaluation, and its worst questions."""

    run: EvaluationRun
    worst: list[MeasuredQuestion]

    @classmethod
    def of(cls, report: EvaluationReport) -> "EvaluationResult":
        return cls(report.run, report.questions[:_SHOWN_QUESTIONS])

    def as_text(self) -> str:
        run = self.run
        progress = f"{run.state}, {run.done} of {run.total} questions measured"
        lines = [f"Evaluation {run.id} of {run.collection} ({run.kind}): {progress}"]
        if run.error:
            lines.append(run.error)
        if (fidelity := run.fidelity) is not None:
            gain_kept = fidelity.gain_kept
            gain = "no gain to keep" if gain_kept is None else f"{gain_kept:.2f} of full prefill's gain kept"
            lines.append(
                f"{gain} on {fidelity.questions} questions; KL {fidelity.kl:.3f} nats a token; "
                f"{fidelity.agree:.0f}% of answers equal apart from case, punctuation and articles; "
                f"first token after {fidelity.ttft_ms:.0f} ms, in full {fidelity.ttft_full_ms:.0f} ms"
            )
        if (retrieval := run.retrieval) is not None:
            lines.append(
                f"{retrieval.recall_at_5:.0f}% of the needed passages among the first 5 on {retrieval.questions} questions; "
                f"a search takes {retrieval.search_ms:.0f} ms"
            )
        for question in self.worst:
            answers = question.answers
            compared = f" stitched {answers.stitched!r}, in full {answers.full!r}" if answers else ""
            outcome = f": {question.error}" if question.error else compared
            lines.append(f"- {question.question or 'a question that is no longer stored'}{outcome}")
        return "\n".join(lines)


def _place(title: str, page_label: str | None, document_id: str, outdated: str | None) -> str:
    warning = f" (outdated: {outdated})" if outdated else ""
    return f"{', '.join(filter(None, (title, page_label)))} (document {document_id}){warning}"


def _line(document: DocumentView, collection: str | None = None) -> str:
    problem = f": {document.outdated or document.error}" if document.outdated or document.error else ""
    place = "" if collection is None else f", collection {collection}"
    return f"{document.name} (document {document.id}{place}): {document.status}, {plural(document.chunks, 'chunk')}{problem}"
