"""Filters over attributes in OpenAI's format."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from api.openai.errors import BadParam
from api.v1.sampling import Whole
from ragkv.service.documents.attribute_filter import AttributeFilter, Comparison, Compound
from ragkv.service.documents.metadata import MAX_FILTER_VALUES, MAX_KEYS

MAX_DEPTH = 8
MAX_COMPARISONS = 100

Kind = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "and", "or"]
Text = Annotated[str, Meta(max_length=512)]
Single = Text | Whole | float | bool


class FilterBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter over attributes: a comparison with `key` and `value`, or a combination of `filters`."""

    type: Annotated[Kind, "Comparison operator, or `and` or `or` to combine filters.", Meta(examples=["eq"])]
    key: Annotated[str, "Attribute to compare.", Meta(min_length=1, max_length=100, examples=["year"])] | None = None
    value: Annotated[
        Single | Annotated[list[Single], Meta(max_length=1000)] | None,
        "Value to compare with; a list for `in` and `nin`.",
    ] = None
    filters: (
        Annotated[list["FilterBody"], "Filters to combine with `and` or `or`.", Meta(min_length=1, max_length=100)]
        | None
    ) = None


def filter_of(body: FilterBody, param: str) -> AttributeFilter:
    """Convert a filter. Raises BadParam, naming a place below `param`,
    for one that mixes both kinds or is too large."""
    attribute_filter = _filter_of(body, param, MAX_DEPTH)
    if len(comparisons := list(_comparisons(attribute_filter))) > MAX_COMPARISONS:
        raise BadParam(param, f"a filter has at most {MAX_COMPARISONS} comparisons")
    if sum(len(comparison.values) for comparison in comparisons) > MAX_FILTER_VALUES:
        raise BadParam(param, f"a filter has at most {MAX_FILTER_VALUES:,} values in all")
    if len({comparison.key for comparison in comparisons}) > MAX_KEYS:
        raise BadParam(param, f"a filter has at most {MAX_KEYS} keys")
    return attribute_filter


def _filter_of(body: FilterBody, param: str, depth: int) -> AttributeFilter:
    if body.type not in ("and", "or"):
        several = body.type in ("in", "nin")
        is_whole = body.key is not None and body.value is not None and body.filters is None
        if not is_whole or isinstance(body.value, list) != several:
            value = "a list" if several else "a single one"
            raise BadParam(param, f"a filter of type {body.type} takes `key` and `value`, {value}")
        values = body.value if isinstance(body.value, list) else [body.value]
        return Comparison(body.key, body.type, tuple(values))  # type: ignore[arg-type]
    if body.filters is None or body.key is not None or body.value is not None:
        raise BadParam(param, f"a filter of type {body.type} takes `filters` and nothing else")
    if not depth:
        raise BadParam(param, f"filters can be nested at most {MAX_DEPTH} levels deep")
    parts = (_filter_of(part, f"{param}.filters[{i}]", depth - 1) for i, part in enumerate(body.filters))
    return Compound("and" if body.type == "and" else "or", tuple(parts))


def _comparisons(attribute_filter: AttributeFilter) -> Iterator[Comparison]:
    if isinstance(attribute_filter, Compound):
        for part in attribute_filter.parts:
            yield from _comparisons(part)
    else:
        yield attribute_filter
