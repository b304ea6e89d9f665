"""Sources of an answer: its passages and citations as files of a vector store."""

import logging
from typing import Annotated

import msgspec

from api.openai.fields import Outdated
from api.v1.ask import AnswerView, NoPassages, PageBoxesPath, PageTextPath, UsageView, Warnings
from api.v1.passages import PassageView
from ragkv.answer.question import Answer, CachedAnswer, Timings
from ragkv.errors import Unavailable
from ragkv.service.base.database import Database
from ragkv.service.base.page import view_from
from ragkv.service.documents.listing import PageLabel, TextEnd, TextStart
from ragkv.service.files.attachments import StoreEntry, entries_by_document

log = logging.getLogger(__name__)


class FileCitation(msgspec.Struct, frozen=True, kw_only=True):
    """A citation: characters [start, end) of a file's text support characters [answer_start, answer_end) of the
    answer."""

    answer_start: Annotated[int, "Offset of the first supported character in the answer."]
    answer_end: Annotated[int, "Offset after the last supported character in the answer."]
    file_id: Annotated[str, "Id of the cited file."]
    filename: Annotated[str, "Name of the cited file."]
    document_id: str
    chunk_id: Annotated[str, "Id of the chunk."]
    title: Annotated[str, "Title of the document."]
    page: Annotated[int | None, "Page number, starting from 1; null for formats without pages."]
    page_label: PageLabel
    start: TextStart
    end: TextEnd
    quote: Annotated[str, "Text of the document at this place."]
    page_text: PageTextPath
    page_boxes: PageBoxesPath
    outdated: Outdated


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Details of an answer that are not part of OpenAI's API: passages, timings and token counts by origin."""

    answer_id: Annotated[
        str, "Id of the answer, for feedback: also the last part of the id of the completion or response."
    ]
    vector_store_id: Annotated[str, "Id of the vector store that was searched."]
    passages: Annotated[
        list[PassageView], "Passages of the prompt, best first; `prompt_position` is their order in the prompt."
    ]
    timings: Annotated[Timings, "Durations of the answer."]
    usage: Annotated[UsageView, "Token counts by origin."]
    cached_answer: Annotated[
        CachedAnswer | None, "Cache entry that the answer was taken from; null if the answer was generated."
    ]
    no_passages: NoPassages
    warnings: Warnings


def sources_of(tenant_id: str, answer: Answer, database: Database) -> dict[str, StoreEntry]:
    """Files of the answer's passages, by document id, without those deleted meanwhile. None while the database is away:
    the answer is there."""
    document_ids = {passage.chunk.document_id for passage in answer.passages}
    try:
        return entries_by_document(tenant_id, sorted(document_ids), database)
    except Unavailable as error:
        log.warning("the answer %s is sent without its citations: %s", answer.id, error)
        return {}


def citations_of(answer: Answer, sources: dict[str, StoreEntry]) -> list[FileCitation]:
    return [
        FileCitation(
            file_id=sources[citation.document_id].file_id,
            filename=sources[citation.document_id].document.name,
            **msgspec.structs.asdict(citation),
        )
        for citation in AnswerView.of(answer).citations
        if citation.document_id in sources
    ]


def facts_of(answer: Answer, collection_id: str) -> AnswerFacts:
    return view_from(AnswerFacts, AnswerView.of(answer), answer_id=answer.id, vector_store_id=collection_id)
