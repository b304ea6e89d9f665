"""Paging of lists in OpenAI's format."""

from typing import Annotated, Any, Literal

from litestar.di import Provide
from litestar.params import QueryParameter

from api.openai.errors import BadParam
from ragkv.service.base.page import PageRequest

Order = Annotated[Literal["asc", "desc"], QueryParameter(description="Sort order by time of creation.")]
After = Annotated[str | None, QueryParameter(description="Return items that follow the item with this id.")]
Before = Annotated[str | None, QueryParameter(description="Return items that precede the item with this id.")]


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


def page_fields(ids: list[str], more: bool) -> dict[str, Any]:
    """The fields of a page beside its items, of which these are the ids. `more`: the list goes on behind them."""
    return {"has_more": more, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
