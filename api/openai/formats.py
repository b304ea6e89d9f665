"""Formats of answers: text, any JSON object, or JSON that a schema describes."""

import itertools
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.openai.errors import BadParam

MAX_SCHEMA_BYTES = 32_768
_MAX_DEPTH = 30
_MAX_COUNT = 10_000
_MAX_PROPERTIES = 500
_MAX_COUNTED_PROPERTIES = 100
"""Properties of the objects that say how many they may have: xgrammar compiles 200 for 13 s, 100 for 0.8."""
_MAX_PATTERN_CHARS = 500
_MAX_REPETITIONS = 128
"""A count in a pattern: xgrammar fails on larger ones, after reading one of 30,000 for 49 s."""
_MAX_ALL_REPETITIONS = 2_000
ANY_OBJECT = '{"type":"object"}'

_OF_PROPERTIES = ("minProperties", "maxProperties")
_COUNTS = (*_OF_PROPERTIES, "minItems", "maxItems", "minLength", "maxLength")
_OF_A_TYPE = (
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minItems", "maxItems", "propertyNames", *_OF_PROPERTIES,
)  # fmt: skip
"""Keywords that xgrammar reads beside a `type` alone."""
_ALTERNATIVES = ("$ref", "anyOf", "oneOf", "allOf")
"""Of these and all that follow xgrammar reads one: what stands beside it would not hold."""
_BESIDE_NONE = (
    "type", "enum", "const", "properties", "required", "items", "prefixItems", "patternProperties", *_OF_A_TYPE,
)  # fmt: skip
_NOT_READ = (
    "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "$dynamicRef", "contains", "uniqueItems",
    "multipleOf",
)  # fmt: skip
"""Keywords that xgrammar leaves out without saying so, or vLLM refuses without naming them."""
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_NAMING = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value is an object of schemas by names."""
_VALUES = ("const", "enum", "default", "examples", "discriminator")
"""Keywords whose value is no schema, whatever it looks like."""
_REPETITION = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")

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
    followed, since a hostile schema must not occupy the engine, and for one of which a part would not hold."""
    match answer_format:
        case JSONObject():
            return ANY_OBJECT
        case JSONSchema(NamedSchema(schema=schema)) | FlatSchema(schema=schema):
            source = msgspec.json.encode(schema)
            if len(source) > MAX_SCHEMA_BYTES:
                raise BadParam(param, f"the schema has {len(source):,} bytes, the limit is {MAX_SCHEMA_BYTES:,}")
            for problem in itertools.chain(_too_large(schema), _left_out(schema)):
                raise BadParam(param, f"the schema cannot be followed: {problem}")
            return source.decode()
    return None


def _too_large(schema: dict[str, Any]) -> Iterator[str]:
    """Reasons why it is too large to be followed."""
    if _is_deeper(schema, _MAX_DEPTH):
        yield f"it is nested more than {_MAX_DEPTH} levels deep"
        return
    parts = list(_schemas(schema))
    for part in parts:
        for name in _COUNTS:
            if name in part and not (isinstance(part[name], int) and 0 <= part[name] <= _MAX_COUNT):
                yield f"{name} must be a number from 0 to {_MAX_COUNT:,}"
    num_properties = [len(_names(part, "properties")) for part in parts]
    if sum(num_properties) > _MAX_PROPERTIES:
        yield f"it has more than {_MAX_PROPERTIES} properties"
    counted = (number for number, part in zip(num_properties, parts, strict=True) if part.keys() & _OF_PROPERTIES)
    if sum(counted) > _MAX_COUNTED_PROPERTIES:
        yield f"its objects with minProperties or maxProperties have more than {_MAX_COUNTED_PROPERTIES} properties"
    patterns = _patterns(parts)
    if max(map(len, patterns)) > _MAX_PATTERN_CHARS:
        yield f"its pattern has more than {_MAX_PATTERN_CHARS} characters"
    repetitions = [int(high or low) for pattern in patterns for low, high in _REPETITION.findall(pattern)]
    if max(repetitions, default=0) > _MAX_REPETITIONS or sum(repetitions) > _MAX_ALL_REPETITIONS:
        yield (
            f"counts in a pattern may be {_MAX_REPETITIONS} at most, {_MAX_ALL_REPETITIONS:,} together "
            "(maxLength bounds a text without a pattern)"
        )


def _left_out(schema: dict[str, Any]) -> Iterator[str]:
    """Reasons why an answer might not be what it describes: xgrammar leaves out what it does not know."""
    parts = list(_schemas(schema))
    for part in parts:
        yield from (f"{name!r} is not supported" for name in _NOT_READ if part.get(name))
        combined = [name for name in (*_ALTERNATIVES, *_BESIDE_NONE) if name in part]
        if len(combined) > 1 and combined[0] in _ALTERNATIVES:
            yield f"{combined[1]!r} beside {combined[0]!r} is not supported: move it into what is referred to or chosen"
        if isinstance(part.get("allOf"), list) and len(part["allOf"]) > 1:
            yield "'allOf' of several schemas is not supported: merge them into one"
        if "type" not in part:
            yield from (f"{name!r} needs a 'type' beside it" for name in _OF_A_TYPE if name in part)
        if part.keys() & {"pattern", "format"} and part.keys() & {"minLength", "maxLength"}:
            yield "a length beside a pattern or format is not supported: let the pattern bound it"
        if str(part.get("$ref", "#")).partition("/")[0] != "#":
            yield "'$ref' must be '#' or begin with '#/', a place in the schema itself"
        required = part.get("required")
        if isinstance(required, list) and (unknown := set(map(str, required)) - set(_names(part, "properties"))):
            yield f"'required' names {min(unknown)!r}, which 'properties' lacks"
    if any(map(_LOOK_AROUND.search, _patterns(parts))):
        yield "look-around in a pattern, such as (?=...), is not supported"


def _patterns(parts: list[dict[str, Any]]) -> list[str]:
    patterns = [str(part.get("pattern", "")) for part in parts]
    return patterns + [name for part in parts for name in _names(part, "patternProperties")]


def _names(part: dict[str, Any], keyword: str) -> list[str]:
    schemas = part.get(keyword)
    return list(schemas) if isinstance(schemas, dict) else []


def _is_deeper(value: Any, levels: int) -> bool:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(member, levels - 1) for member in members)


def _schemas(value: Any) -> Iterator[dict[str, Any]]:
    """The schema, and each that is part of it."""
    if isinstance(value, list):
        for member in value:
            yield from _schemas(member)
    elif isinstance(value, dict):
        yield value
        for name, member in value.items():
            if name in _NAMING and isinstance(member, dict):
                yield from _schemas(list(member.values()))
            elif name not in _VALUES:
                yield from _schemas(member)
