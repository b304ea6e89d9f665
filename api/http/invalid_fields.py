"""Invalid fields of a request, each with the accepted values."""

import difflib
import re
from collections.abc import Iterator
from typing import Any

from litestar import Request
from litestar.exceptions import HTTPException
from msgspec import inspect

InvalidField = dict[str, Any]
"""`message`, `key` (its place; `data` for a whole body) and `source`, as the framework reports them."""

MAX_PLACE = 200
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_NO_BODY = "'data'"
_NO_FILE = re.compile(r"Unsupported type: <class '(?:str|list)'>")
_WITH_ITEMS = inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType
_STEP = re.compile(r"([^.\[\]]+)|\[[^\]]*\]")


def invalid_fields(error: Exception, request: Request[Any, Any, Any]) -> list[InvalidField]:
    """The fields for which the framework refused the request; none for other errors."""
    if not isinstance(error, HTTPException) or not isinstance(error.extra, list):
        return []
    return [field | {"message": _message(field, request)} for field in error.extra]


def is_unknown(field: InvalidField) -> bool:
    """Whether there is no such field."""
    return _UNKNOWN.search(str(field["message"])) is not None


def place_of(field: InvalidField) -> str:
    """The place of a field in the request, such as `messages[0].role`; empty for the whole body. An object in a form
    has its own name, without that of its part, as in `expires_after[days]`."""
    place, unknown = str(field.get("key", "")), _UNKNOWN.search(str(field["message"]))
    steps = ("" if place == "data" else place, unknown[1].partition("[")[0] if unknown else "")
    return ".".join(filter(None, steps))[:MAX_PLACE]


def _message(field: InvalidField, request: Request[Any, Any, Any]) -> str:
    message = str(field.get("message", ""))
    if message == _NO_BODY:
        return "the body is empty: send JSON"
    if _NO_FILE.match(message):
        return "expected one file, sent with a file name"
    # Its type: at a place such as `messages[0].role` in a body, or of a parameter of the handler or its dependencies.
    place = str(field.get("key", ""))
    parameter, steps = ("data", "" if place == "data" else place) if field.get("source") == "body" else (place, "")
    handler = request.route_handler
    dependencies = (dependency.parsed_fn_signature for dependency in handler.resolve_dependencies().values())
    signatures = (signature.parameters for signature in (handler.parsed_fn_signature, *dependencies))
    annotation = next((signature[parameter].annotation for signature in signatures if parameter in signature), Any)
    return explained(message, type_at(inspect.type_info(annotation), steps))


def explained(message: str, kind: inspect.Type) -> str:
    """A validator's message about a value of this type, with the accepted values, a known field, or the description of
    the field."""
    accepted = list(_alternatives(kind))
    if message.startswith(("Invalid enum value", "Invalid value")) and (
        values := [repr(v) for kind in accepted for v in _values(kind)]
    ):
        return f"{message}: use {' or '.join(filter(None, (', '.join(values[:-1]), values[-1])))}"
    if unknown := _UNKNOWN.fullmatch(message):
        near = difflib.get_close_matches(unknown[1], field_names(kind), n=1, cutoff=0.7)
        required = ", ".join(map(repr, field_names(kind, only_required=True)))
        hint = f"did you mean {near[0]!r}?" if near else required and f"required: {required}"
        return ": ".join(filter(None, (message, hint)))
    if message.startswith("Expected"):
        schemas = [kind.extra_json_schema or {} for kind in accepted if isinstance(kind, inspect.Metadata)]
        return ". ".join([message, *(schema["description"] for schema in schemas if schema.get("description"))])
    return message


def type_at(kind: inspect.Type, place: str) -> inspect.Type:
    """The type of what is at a place in a value, such as `messages[0].role`."""
    for step in _STEP.finditer(place):
        kind = inspect.UnionType(tuple(_members(kind, step[1])))
    return kind


def field_names(kind: inspect.Type, *, only_required: bool = False) -> list[str]:
    """Names of the fields of a structure, or of each in a union."""
    structures = (struct for struct in _alternatives(kind) if isinstance(struct, inspect.StructType))
    fields = (field for struct in structures for field in struct.fields)
    return [field.encode_name for field in fields if field.required or not only_required]


def _members(kind: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """The types of a field of structures, or, without a name, of the elements of lists, tuples, sets and mappings."""
    for alternative in _alternatives(kind):
        if isinstance(alternative, inspect.StructType | inspect.DataclassType):
            yield from (field.type for field in alternative.fields if field.encode_name == name)
            if isinstance(alternative, inspect.StructType) and name is not None and name == alternative.tag_field:
                yield inspect.LiteralType((alternative.tag,))
        elif isinstance(alternative, _WITH_ITEMS) and name is None:
            yield alternative.item_type
        elif isinstance(alternative, inspect.DictType) and name is None:
            yield alternative.value_type


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The type, or all of a union; behind a described type the type itself."""
    if isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _alternatives(member)
    else:
        yield kind
        if isinstance(kind, inspect.Metadata):
            yield from _alternatives(kind.type)


def _values(kind: inspect.Type) -> Iterator[object]:
    if isinstance(kind, inspect.LiteralType):
        yield from kind.values
    elif isinstance(kind, inspect.EnumType):
        yield from (member.value for member in kind.cls)
