"""Formats of answers: text, any JSON object, or JSON that a schema describes."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.openai.errors import BadParam

MAX_SCHEMA_BYTES = 32_768
_MAX_DEPTH = 30
_MAX_COUNT = 10_000
_MAX_PATTERN_CHARS = 500
ANY_OBJECT = '{"type":"object"}'

Name = Annotated[str, "Name of the format; no effect on the answer.", Meta(max_length=200)]
Description = Annotated[str | None, "Description of the format; no effect on the answer."]
Schema = Annotated[dict[str, Any], "JSON Schema that the answer follows, at most 32 KiB."]
Strict = Annotated[bool | None, "No effect: an answer always follows the schema."]


class PlainText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Plain text."""


class JSONObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema and its name."""

    name: Name
    description: Description = None
    schema: Schema
    strict: Strict = None


class JSONSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    """JSON that follows a schema."""

    json_schema: Annotated[NamedSchema, "The schema and its name."]


class FlatSchema(
    NamedSchema, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"
):
    """JSON that follows a schema."""


ChatFormat = PlainText | JSONObject | JSONSchema
TextFormat = PlainText | JSONObject | FlatSchema


def schema_of(answer_format: ChatFormat | TextFormat | None, param: str) -> str | None:
    """The JSON Schema that an answer follows, None for plain text. Raises BadParam for one that is too large to be
    followed: a hostile schema must not occupy the engine."""
    match answer_format:
        case JSONObject():
            return ANY_OBJECT
        case JSONSchema(NamedSchema(schema=schema)) | FlatSchema(schema=schema):
            source = msgspec.json.encode(schema)
            if len(source) > MAX_SCHEMA_BYTES:
                raise BadParam(param, f"the schema has {len(source):,} bytes, the limit is {MAX_SCHEMA_BYTES:,}")
            for problem in _too_large(schema, 0):
                raise BadParam(param, f"the schema cannot be followed: {problem}")
            return source.decode()
    return None


def _too_large(value: Any, depth: int) -> Iterator[str]:
    """Problems of a schema that is too large, part by part."""
    if depth > _MAX_DEPTH:
        yield f"it is nested more than {_MAX_DEPTH} levels deep"
    elif isinstance(value, dict):
        for name, member in value.items():
            counts = name.startswith(("min", "max")) and name.endswith(("Items", "Length", "Properties"))
            if counts and not (isinstance(member, int) and 0 <= member <= _MAX_COUNT):
                yield f"{name} must be a number from 0 to {_MAX_COUNT:,}"
            if name == "pattern" and len(str(member)) > _MAX_PATTERN_CHARS:
                yield f"its pattern has more than {_MAX_PATTERN_CHARS} characters"
            yield from _too_large(member, depth + 1)
    elif isinstance(value, list):
        for member in value:
            yield from _too_large(member, depth + 1)
