"""Schemas of answers: what the engine would leave out of one is refused, and said."""

import json
from typing import Any

import pytest

from api.openai.errors import BadParam
from api.openai.formats import JSONSchema, NamedSchema, schema_of

WHOLE = {"type": "integer"}
OBJECT = {"type": "object", "properties": {"a": WHOLE, "b": WHOLE}}
TEXT = {"$defs": {"text": {"type": "string"}}}

LEFT_OUT: list[tuple[dict[str, Any], str]] = [
    ({"type": "string", "not": {"enum": ["x"]}}, "'not' is not supported"),
    (OBJECT | {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "'if' is"),
    (OBJECT | {"dependentRequired": {"a": ["b"]}}, "'dependentRequired' is"),
    ({"type": "array", "items": WHOLE, "uniqueItems": True}, "'uniqueItems' is"),
    ({"allOf": [OBJECT, {"type": "object", "properties": {"c": WHOLE}}]}, "'allOf' of several"),
    (OBJECT | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "'type' beside 'anyOf'"),
    (TEXT | {"$ref": "#/$defs/text", "maxLength": 3}, "'maxLength' beside '\\$ref'"),
    ({"$ref": "https://example.com/schema"}, "a place in the schema itself"),
    ({"$ref": "#anchor"}, "a place in the schema itself"),
    ({"type": "object", "properties": {"a": {"maxLength": 3}}}, "'maxLength' needs a 'type'"),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, "a length beside a pattern"),
    ({"type": "string", "pattern": "^(?!a)[ab]$"}, "look-around"),
    (OBJECT | {"required": ["a", "c"]}, "'required' names 'c'"),
]

FOLLOWED: list[dict[str, Any]] = [
    {},
    OBJECT | {"required": ["a"], "additionalProperties": False, "title": "T", "description": "D"},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "default": None, "title": "T"},
    TEXT | {"type": "array", "items": {"$ref": "#/$defs/text", "description": "D"}, "maxItems": 3},
    TEXT | {"allOf": [{"$ref": "#/$defs/text"}], "description": "D"},
    {"oneOf": [OBJECT, WHOLE], "discriminator": {"propertyName": "a", "mapping": {"not": "#/$defs/x"}}},
    {"type": ["string", "null"], "pattern": "^[0-9]{4}$"},
    {"type": "string", "enum": ["a", "b"]},
    {"type": "object", "properties": {"not": WHOLE, "required": {"type": "boolean"}}, "required": ["not"]},
]


def schema_for(schema: dict[str, Any]) -> str:
    followed = schema_of(JSONSchema(NamedSchema(name="x", schema=schema)), "response_format")
    assert followed is not None
    return followed


def test_a_schema_of_which_a_part_would_not_hold_is_refused(subtests: pytest.Subtests) -> None:
    for schema, reason in LEFT_OUT:
        with subtests.test(reason), pytest.raises(BadParam, match=reason):
            schema_for(schema)


def test_what_clients_write_is_followed(subtests: pytest.Subtests) -> None:
    """As Pydantic, Zod and people write schemas."""
    for schema in FOLLOWED:
        with subtests.test(schema=str(schema)):
            assert json.loads(schema_for(schema)) == schema
