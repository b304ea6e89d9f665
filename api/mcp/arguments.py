"""Arguments of the tools, as models see them: their descriptions say which to use when."""

from typing import Annotated

import msgspec
from msgspec import Meta

from api.v1.data_sources import Interval
from api.v1.passages import Filters
from api.v1.questions import FeedbackText
from ragkv.answer.question import QUESTION_CHARACTERS
from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.status import Status
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.data_sources.data_sources import DEFAULT_INTERVAL_MINUTES
from ragkv.service.documents.metadata import Metadata
from ragkv.service.evaluations.outcome import Kind
from ragkv.service.evaluations.runs import MAX_QUESTIONS
from ragkv.service.questions.statements import Rating
from ragkv.text import MAX_FILE_NAME_CHARS

Collection = Annotated[str, Meta(description="Name or id of the collection of documents.")]
Query = Annotated[
    str,
    Meta(
        description="A question or topic, in plain words and complete in itself: the service does not know the conversation.",
        extra_json_schema={"maxLength": QUESTION_CHARACTERS},
    ),
]


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search: the question, and the documents to search."""

    question: Query
    collection: Collection = DEFAULT_COLLECTION
    filter: Filters | None = None
    top_k: Annotated[int, Meta(ge=1, le=50, description="Number of passages.")] | None = None


class AskArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, and the documents it is about."""

    question: Query
    collection: Collection = DEFAULT_COLLECTION
    filter: Filters | None = None


class ListArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listing of documents."""

    collection: Annotated[str, Meta(description="Name or id of a collection; omit it for all collections.")] | None = (
        None
    )
    status: Annotated[Status, Meta(description="Only documents in this state.")] | None = None
    name: (
        Annotated[str, Meta(max_length=MAX_FILE_NAME_CHARS, description="Part of the documents' names, ignoring case.")]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Number of documents on a page.")] = 50
    cursor: Annotated[str, Meta(description="`next` of the previous page.")] | None = None


class CollectionsArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listing of collections."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Number of collections on a page.")] = 50
    cursor: Annotated[str, Meta(description="`next` of the previous page.")] | None = None


class AddArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document: its name, and either `text` or `base64`."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_FILE_NAME_CHARS,
            description="File name; its extension tells the format, like notes.md.",
        ),
    ]
    text: Annotated[str, Meta(description="The document, if it is text: plain, Markdown or HTML.")] | None = None
    base64: Annotated[str, Meta(description="The bytes of a file in base64, such as a PDF.")] | None = None
    collection: Collection = DEFAULT_COLLECTION
    metadata: Annotated[Metadata, Meta(description="Facts to filter by later.", examples=[{"year": 2024}])] = {}


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of a document's text, as a citation or passage names it."""

    document_id: Annotated[str, Meta(description="`document_id` of the citation or passage.")]
    start: Annotated[int, Meta(ge=0, le=1_000_000_000, description="`start` of the citation or passage.")]
    end: Annotated[int, Meta(ge=1, le=1_000_000_000, description="`end` of the citation or passage.")]
    checksum: (
        Annotated[
            str,
            Meta(
                pattern="^[0-9a-f]{8}$",
                description="`checksum` of the citation or passage: once the document has other words at this place, the call is "
                "refused.",
            ),
        ]
        | None
    ) = None
    picture: Annotated[bool, Meta(description="Also return the page as a picture: PDF files and images only.")] = False


class RateArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feedback on an answer. It replaces earlier feedback on it."""

    answer_id: Annotated[str, Meta(description="`answer_id` of the result of `ask`.")]
    rating: Annotated[Rating, Meta(description="`up` for a good answer, `down` for a bad one.")]
    correction: Annotated[FeedbackText, Meta(description="The right answer, in as few words as possible.")] | None = (
        None
    )
    comment: Annotated[FeedbackText, Meta(description="Anything else about the answer.")] | None = None


class AddSourceArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A data source to keep a collection in sync with."""

    location: Annotated[
        str,
        Meta(
            description="A folder on the service's machine or the URL of a prefix in an object store, which the operator must allow.",
            examples=["/srv/handbook", "s3://company/handbook"],
        ),
    ]
    collection: Collection = DEFAULT_COLLECTION
    interval_minutes: Annotated[
        Interval, Meta(description="Minutes between two syncs; 0 for syncs on request only.")
    ] = DEFAULT_INTERVAL_MINUTES


class SourceArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Choice of a data source."""

    id: Annotated[str, Meta(description="Id of a data source; omit it for all.")] | None = None


class StartArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An evaluation to start."""

    collection: Collection = DEFAULT_COLLECTION
    kind: Annotated[
        Kind,
        Meta(
            description="`fidelity`: compare answers from stored KV with full computation. `retrieval`: check whether search finds the passages."
        ),
    ] = "fidelity"
    limit: Annotated[
        int, Meta(ge=1, le=MAX_QUESTIONS, description="Maximum number of questions; the newest are measured.")
    ] = 100


class EvaluationArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Choice of an evaluation."""

    id: Annotated[str, Meta(description="Id of the evaluation.")]
