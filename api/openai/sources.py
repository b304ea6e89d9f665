"""Sources of an answer: its passages and citations as files of a vector store."""

import msgspec

from api.v1.ask import AnswerView, UsageView
from api.v1.passages import PassageView
from ragkv.answer.question import Answer, CachedAnswer, Timings
from ragkv.catalog.attachments import StoreEntry, entries_by_document
from ragkv.catalog.metadata import Metadata
from ragkv.db.database import Database


class FileCitation(msgspec.Struct, frozen=True, kw_only=True):
    """A citation: characters [start, end) of a file's text support characters [answer_start, answer_end) of the
    answer."""

    answer_start: int
    answer_end: int
    file_id: str
    filename: str
    document_id: str
    chunk_id: str
    title: str
    page: int | None
    page_label: str | None
    start: int
    end: int
    quote: str
    page_text: str
    page_boxes: str | None
    outdated: str | None


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Details of an answer that are not part of OpenAI's API: passages, timings and token counts by origin."""

    answer_id: str
    vector_store_id: str
    passages: list[PassageView]
    timings: Timings
    usage: UsageView
    cached_answer: CachedAnswer | None


def sources_of(tenant_id: str, answer: Answer, database: Database) -> dict[str, StoreEntry]:
    """Files of the answer's passages, by document id, without those deleted meanwhile."""
    document_ids = {passage.chunk.document_id for passage in answer.passages}
    return entries_by_document(tenant_id, sorted(document_ids), database)


def citations_of(answer: Answer, sources: dict[str, StoreEntry]) -> list[FileCitation]:
    return [
        FileCitation(
            file_id=sources[one.document_id].file_id,
            filename=sources[one.document_id].document.name,
            **msgspec.structs.asdict(one),
        )
        for one in AnswerView.of(answer).citations
        if one.document_id in sources
    ]


def facts_of(answer: Answer, collection_id: str) -> AnswerFacts:
    view = AnswerView.of(answer)
    return AnswerFacts(
        answer_id=answer.id,
        vector_store_id=collection_id,
        passages=view.passages,
        timings=view.timings,
        usage=view.usage,
        cached_answer=view.cached_answer,
    )


def attributes_of(metadata: Metadata) -> dict[str, str | int | float | bool]:
    """The metadata that OpenAI's attributes can hold: no lists, objects or null."""
    return {key: value for key, value in metadata.items() if isinstance(value, str | int | float | bool)}
