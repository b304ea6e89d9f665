"""Passages in requests and responses, and the choice of documents that they may come from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import Meta

from ragkv.answer.question import QUESTION_CHARACTERS, PassageKV
from ragkv.chunk import Passage
from ragkv.errors import NotFound
from ragkv.service.base.database import Database
from ragkv.service.base.page import view_from
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.documents.cited import Outdated, checksum_of
from ragkv.service.documents.listing import DocumentFilter, PageLabel, PageNumber, TextEnd, TextStart, matching_ids
from ragkv.service.documents.metadata import Scalar

QuestionText = Annotated[
    str,
    "The question.",
    Meta(examples=["Who wrote the first program?"], extra_json_schema={"maxLength": QUESTION_CHARACTERS}),
]
"""A longer one is refused by `ragkv.answer.question`, which says what to do."""

Filters = Annotated[
    dict[str, Scalar | list[Scalar]],
    "Use only documents whose metadata matches this filter. At most 64 keys and 1,000 values.",
    Meta(
        description="Metadata filter: for each key, the required value or a list of accepted values. At most 64 keys and 1,000 "
        "values.",
        examples=[{"year": [2023, 2024]}],
    ),
]

DocumentIdList = Annotated[list[str], "Use only the documents with these ids.", Meta(max_length=1000)]
TopK = Annotated[int, "Maximum number of passages.", Meta(ge=1, le=200)]
ScoreThreshold = Annotated[
    float, "Minimum `score` of passages; those of a lower one are as if they had not been found.", Meta(ge=0, le=1e6)
]
Hops = Annotated[
    int, "Number of retrieval hops: each hop searches with the passages of the previous one.", Meta(ge=1, le=8)
]


PICTURED = ("application/pdf", "image/")
"""Beginnings of the media types whose pages have pictures."""


class PassageView(msgspec.Struct, frozen=True, kw_only=True):
    """A passage: characters [start, end) of a document's text. checksum: of its words there. outdated: the reason why
    they are from an earlier file than the document's."""

    chunk_id: Annotated[str, "Id of the chunk."]
    document_id: str
    title: Annotated[str, "Title of the document."]
    text: Annotated[str, "Text of the passage."]
    page: PageNumber
    page_label: PageLabel
    start: TextStart
    end: TextEnd
    score: Annotated[float, "Relevance score, comparable only within one search."]
    hop: Annotated[int, "Retrieval hop in which the passage was found, starting from 1."]
    kv: Annotated[PassageKV | None, "Origin of the passage's KV; null outside of answers."] = None
    prompt_position: Annotated[
        int | None, "Position among the passages of the prompt, starting from 0; null for passages outside of a prompt."
    ] = None
    omitted_tokens: Annotated[
        int, "Number of tokens of the passage that are not in the prompt because of the collection's compression."
    ] = 0
    checksum: Annotated[
        str,
        "Checksum of the passage's words, eight hexadecimal digits: with it `GET "
        "/v1/documents/{document_id}/text` refuses the place once the document has other words there.",
    ]
    outdated: Outdated = None

    @classmethod
    def of(cls, passage: Passage, kv: PassageKV | None = None, prompt_position: int | None = None) -> "PassageView":
        chunk = passage.chunk
        return view_from(
            cls,
            chunk,
            chunk_id=chunk.id,
            page_label=chunk.page_label_at(),
            score=passage.score,
            hop=passage.hop,
            kv=kv,
            prompt_position=prompt_position,
            omitted_tokens=chunk.num_tokens - kv.tokens if kv else 0,
            checksum=checksum_of(chunk.text),
        )


def searched_documents(
    tenant_id: str,
    collection: str,
    filters: dict[str, Scalar | list[Scalar]] | None,
    document_ids: Sequence[str] | None,
    database: Database,
) -> tuple[CollectionRef, frozenset[str] | None]:
    """The collection, by id or name, and those of its documents that match the filter and are among the ids; None for
    all. Raises NotFound for an unknown collection or id."""
    ref = collection_ref(tenant_id, collection, database)
    if filters is None and document_ids is None:
        return ref, None
    ids = None if document_ids is None else frozenset(document_ids)
    among = DocumentFilter(ref.tenant_id, ref.collection_id, ids=ids)
    if ids is not None and (unknown := ids - matching_ids(among, database)):
        raise NotFound(f"the collection has no document {min(unknown)[:80]!r}")
    return ref, matching_ids(replace(among, metadata=filters), database)


def text_path(document_id: str, start: int, end: int, words: str) -> str:
    """Path of the text around characters [start, end), as long as the words are there."""
    return f"/v1/documents/{document_id}/text?{_place(start, end, words)}"


def boxes_path(document_id: str, media_type: str, start: int, end: int, words: str) -> str | None:
    """Path of the boxes over the words; None for a document whose pages have no pictures."""
    pictured = media_type.startswith(PICTURED)
    return f"/v1/documents/{document_id}/boxes?{_place(start, end, words)}" if pictured else None


def _place(start: int, end: int, words: str) -> str:
    return f"start={start}&end={end}&checksum={checksum_of(words)}"
