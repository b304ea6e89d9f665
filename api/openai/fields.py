"""Types of fields that several bodies share, and paging of lists."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec
from litestar.di import Provide
from litestar.params import QueryParameter
from msgspec import Meta

from api.openai.errors import BadParam
from api.v1.sampling import Whole
from ragkv.service.base.page import Page, PageRequest
from ragkv.service.documents.metadata import Metadata

T = TypeVar("T")

NotSupported = (
    Annotated[list[Any], Meta(max_length=0, description="Not supported: omit it.")]
    | Annotated[dict[str, Any], Meta(max_length=0, description="Not supported: omit it.")]
    | None
)
"""Any value but null and an empty list or object, which ask for nothing, is refused, naming the field."""

Ignored = Annotated[str, Meta(max_length=1000, description="No effect on the answer.")] | None
Flag = Annotated[bool, Meta(description="No effect on the answer.")] | None
Off = Annotated[bool, Meta(description="Only false is supported.")] | None
"""To be checked with `refuse_switched_on`."""
One = Annotated[Literal[1], Meta(description="Only 1 is supported.")] | None
Retrieval = (
    Annotated[bool, "Not part of OpenAI's API: false answers from the messages alone. No passages, no citations."]
    | None
)
ToolChoice = Annotated[
    Literal["auto", "none", "required"] | dict[str, Any],
    "`auto` or `none`, both answered with text; a function cannot be required.",
]
Tokens = Annotated[int, Meta(ge=1, le=1_000_000)] | None
Tier = Annotated[Literal["auto", "default"], Meta(description="No effect on the answer.")] | None

Key = Annotated[str, Meta(min_length=1, max_length=64)]
Tags = Annotated[
    dict[Key, Annotated[str, Meta(max_length=512)]], Meta(max_length=16, description="No effect on the answer.")
]
"""OpenAI's `metadata`."""
Attributes = Annotated[
    dict[Key, Annotated[str, Meta(max_length=512)] | Whole | float | bool],
    Meta(
        max_length=16,
        description="Attributes of the file: the metadata of its document.",
        examples=[{"year": 2024, "draft": False}],
    ),
]
Id = Annotated[str, Meta(min_length=1, max_length=200)]
StoreIds = Annotated[
    list[Id], Meta(min_length=1, max_length=1, description="Vector store to answer from, by id or name.")
]
ModelId = Annotated[str, "Id of the model, as listed by `/v1/models`. MODEL@COLLECTION answers from that collection."]
Created = Annotated[int, "Time of creation in Unix seconds."]
Score = Annotated[
    float,
    "Relevance from 0 to 1, comparable only within one search: 0.5 for what all rankings put first. No probability.",
]
Outdated = Annotated[
    str | None,
    "Not part of OpenAI's API: the reason why the text is from an earlier file than the document's present one, which "
    "has not been read yet or could not be read; otherwise null.",
]
MaxResults = Annotated[int, Meta(ge=1, le=50)]

Anything = (
    Annotated[
        list[dict[str, Any]],
        "Accepted so that earlier answers can be sent back; no effect on the answer.",
        Meta(max_length=10_000),
    ]
    | None
)
"""Parts of earlier answers, sent back with the conversation. Not read."""

Order = Annotated[Literal["asc", "desc"], QueryParameter(description="Sort order by time of creation.")]
After = Annotated[str | None, QueryParameter(description="Return items that follow the item with this id.")]
Before = Annotated[str | None, QueryParameter(description="Return items that precede the item with this id.")]


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list. Each list has a type of its own, which states what `data` is."""

    data: list[Any]
    has_more: Annotated[bool, "Whether there are more items after this page."]
    first_id: Annotated[str | None, "Id of the first item; null on an empty page."]
    last_id: Annotated[str | None, "Id of the last item; null on an empty page."]
    object: Literal["list"] = "list"

    @classmethod
    def of(cls, page: Page[T], view_of: Callable[[T], Any]) -> Self:
        """The page's items as views, each with an id."""
        data = [view_of(item) for item in page.items]
        ids = [view.id for view in data] or [None]
        return cls(data=data, has_more=page.more, first_id=ids[0], last_id=ids[-1])


class AutoChunking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Chunking strategy; only `auto` is supported. The setting RAGKV_CHUNK_TOKENS determines the size of chunks."""

    type: Annotated[Literal["auto"], "Type of the strategy; only `auto` is supported."]


def refuse_forced_tool(choice: "ToolChoice | None") -> None:
    """Check the choice of a tool. Raises BadParam for one that requires a function to be called."""
    if choice not in (None, "auto", "none", {}):
        raise BadParam(
            "tool_choice",
            "no function is called here: answers are text from documents. Set tool_choice to 'auto' or 'none'; for an "
            "answer in the form of a schema use response_format, in responses text.format",
        )


def refuse_switched_on(body: msgspec.Struct, names: tuple[str, ...]) -> None:
    """Check for unsupported fields. Raises BadParam for the first of these fields that is true."""
    for name in names:
        if getattr(body, name):
            raise BadParam(name, f"{name!r} is not supported: omit it")


def attributes_of(metadata: Metadata) -> dict[str, str | int | float | bool]:
    """The metadata that OpenAI's attributes can hold: no lists, objects or null."""
    return {key: value for key, value in metadata.items() if isinstance(value, str | int | float | bool)}


def page_of(
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="Maximum number of items on a page.")] = 20,
    order: Order = "desc",
    after: After = None,
    before: Before = None,
) -> PageRequest:
    """The dependency `page`. Raises BadParam for `after` together with `before`."""
    if after is not None and before is not None:
        raise BadParam("before", "set either `after` or `before`, not both")
    return PageRequest(limit, newest_first=order == "desc", after=after, before=before)


PAGED = {"page": Provide(page_of, sync_to_thread=False)}
"""For endpoints that list something."""
