"""Arguments of the tools, as models see them: their descriptions say when to use which."""

from typing import Annotated

import msgspec
from msgspec import Meta

from api.v1.passages import Filters
from ragkv.answer.limits import QUESTION_CHARACTERS
from ragkv.catalog.metadata import Metadata
from ragkv.status import Status
from ragkv.tenancy import DEFAULT_COLLECTION

Collection = Annotated[str, Meta(description="Name or id of the collection of documents.")]
Query = Annotated[
    str,
    Meta(
        description="A question or topic, in plain words and complete in itself: nothing is known of the conversation.",
        extra_json_schema={"maxLength": QUESTION_CHARACTERS},
    ),
]


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to search for, and where."""

    question: Query
    collection: Collection = DEFAULT_COLLECTION
    filter: Filters | None = None
    top_k: Annotated[int, Meta(ge=1, le=50, description="Number of passages.")] | None = None


class AskArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to ask, and about which documents."""

    question: Query
    collection: Collection = DEFAULT_COLLECTION
    filter: Filters | None = None


class ListArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which documents to list."""

    collection: Annotated[str, Meta(description="Name or id of a collection; all collections without one.")] | None = (
        None
    )
    status: Annotated[Status, Meta(description="Only documents in this state.")] | None = None
    name: Annotated[str, Meta(max_length=500, description="A part of the documents' names, in any case.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=200, description="Number of documents on a page.")] = 50
    cursor: Annotated[str, Meta(description="`next` of the page before.")] | None = None


class AddArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document: its name, and either `text` or `base64`."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=500, description="File name; its extension tells the format, like notes.md."),
    ]
    text: Annotated[str, Meta(description="The document, if it is text: plain, Markdown or HTML.")] | None = None
    base64: Annotated[str, Meta(description="The bytes of a file in base64, such as a PDF.")] | None = None
    collection: Collection = DEFAULT_COLLECTION
    metadata: Annotated[Metadata, Meta(description="Facts to filter by later.", examples=[{"year": 2024}])] = {}
