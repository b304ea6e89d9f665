"""/schema: the OpenAPI document and its page, both made on the first request."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request
from litestar.enums import HttpMethod
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Server
from litestar.types import Method
from litestar.types.internal_types import PathParameterDefinition

from api.admin.shell import render
from api.http.sse import EVENT_STREAM
from api.schema.document import Examples, Json, document_of
from ragkv import __version__

DESCRIPTION = """Question answering over documents, with citations. The model processes the chunks of each document once, when \
it is uploaded; the prompt of a question is stitched from their stored keys and values instead of being computed again.

Requests with unknown fields are rejected. Numbers and booleans may also be sent as strings.

Send an API key as `Authorization: Bearer rk_...`. A service on the \
loopback address without a sign-in provider requires no key until the first one is created. Errors are returned as \
problem details (RFC 9457), and in OpenAI's error format under the paths of OpenAI's API."""


FIRST_PROBLEM = "400"
METHODS = ("get", "post", "put", "patch", "delete")
_LIMITS = {
    "minimum": "from {}", "maximum": "to {}", "minLength": "{} characters or more", "maxLength": "{} characters or fewer",
    "minItems": "{} or more", "maxItems": "{} or fewer", "format": "{}", "pattern": "like {}",
}  # fmt: skip


def openapi_config(examples: Examples) -> OpenAPIConfig:
    """Litestar's configuration of the document: paths, title, description."""
    document = _Document(examples)
    return OpenAPIConfig(
        title="ragkv",
        version=__version__,
        description=DESCRIPTION,
        servers=[Server(url="/", description="This service.")],
        path="/schema",
        render_plugins=[_Page(document), _Raw(document)],
        use_handler_docstrings=True,
        operation_id_creator=_operation_id,
    )


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A parameter, or a member of an object."""

    name: str
    kind: str
    required: bool
    what: str


@dataclass(frozen=True, slots=True)
class Content:
    """A request body or a response. `status` is empty for a body."""

    status: str
    what: str
    media_type: str
    kind: str
    example: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    id: str
    method: str
    path: str
    summary: str
    what: str
    scope: str
    parameters: list[FieldRow]
    bodies: list[Content]
    answers: list[Content]
    problems: list[Content]


@dataclass(frozen=True, slots=True)
class Type:
    """A component of the document: the members of an object, or the kind of any other."""

    name: str
    what: str
    members: list[FieldRow]
    kind: str


def page_of(document: Json) -> str:
    """The page as HTML."""
    groups: dict[str, list[Operation]] = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                groups.setdefault(item[method]["tags"][0], []).append(_operation(method, path, item[method]))
    types = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        needed = schema.get("required", ())
        members = [
            FieldRow(member, kind_of(field), member in needed, field.get("description", ""))
            for member, field in schema.get("properties", {}).items()
        ]
        types.append(Type(name, schema.get("description", ""), members, "" if members else kind_of(schema)))
    meaning = {tag["name"]: tag["description"] for tag in document["tags"]}
    return render("schema.html", info=document["info"], groups=groups, types=types, meaning=meaning)


def kind_of(schema: Json) -> str:
    """A schema in a few words: the kind of value, and its limits."""
    stated = [(text, schema[name]) for name, text in _LIMITS.items() if name in schema]
    limits = [
        text.format(int(limit) if isinstance(limit, float) and limit.is_integer() else limit) for text, limit in stated
    ]
    return f"{_bare(schema)} ({', '.join(limits)})" if limits else _bare(schema)


def _operation_id(handler: object, method: Method, path: list[str | PathParameterDefinition]) -> str:
    """Operation id, for generated clients: get_documents_chunks."""
    parts = [part for part in path if isinstance(part, str) and part != "v1"]
    suffix = ["one"] if path and not isinstance(path[-1], str) else []
    return "_".join([HttpMethod(method).value.lower(), *parts, *suffix])


class _Document:
    """The document as JSON and as a page, for both plugins."""

    app: Litestar

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    @cached_property
    def whole(self) -> Json:
        return document_of(self.app, self._examples)

    @cached_property
    def encoded(self) -> bytes:
        return msgspec.json.encode(self.whole)

    @cached_property
    def page(self) -> bytes:
        return page_of(self.whole).encode()


class _Raw(OpenAPIRenderPlugin):
    def __init__(self, document: _Document) -> None:
        super().__init__(path="/openapi.json", media_type=MediaType.JSON)
        self._document = document

    def render(self, request: Request[Any, Any, Any], openapi_schema: Json) -> bytes:
        self._document.app = request.app
        return self._document.encoded


class _Page(OpenAPIRenderPlugin):
    def __init__(self, document: _Document) -> None:
        super().__init__(path="/", media_type=MediaType.HTML)
        self._document = document

    def render(self, request: Request[Any, Any, Any], openapi_schema: Json) -> bytes:
        self._document.app = request.app
        return self._document.page


def _bare(schema: Json) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(kind_of(alternative) for alternative in several)
    if "enum" in schema or "const" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    name, members = schema.get("type"), schema.get("additionalProperties")
    if name == "array" and schema.get("items"):
        return f"list of {kind_of(schema['items'])}"
    if name == "object" and isinstance(members, dict):
        return f"object of {kind_of(members)}"
    return " or ".join(name) if isinstance(name, list) else name or "anything"


def _operation(method: str, path: str, operation: Json) -> Operation:
    scopes = [scope for rule in operation["security"] for scopes in rule.values() for scope in scopes]
    body = operation.get("requestBody") or {}
    answers: list[Content] = []
    for status, answer in sorted(operation["responses"].items()):
        empty = [Content(status, answer["description"], "", "", "")]
        answers += _contents(status, answer["description"], answer["content"]) if answer.get("content") else empty
    return Operation(
        id=operation["operationId"],
        method=method,
        path=path,
        summary=operation.get("summary", ""),
        what=operation.get("description", ""),
        scope=scopes[0] if scopes else "",
        parameters=[
            FieldRow(
                parameter["name"],
                kind_of(parameter["schema"]),
                bool(parameter.get("required")),
                parameter.get("description") or "",
            )
            for parameter in operation.get("parameters", ())
        ],
        bodies=list(_contents("", "", body.get("content") or {})),
        answers=[answer for answer in answers if answer.status < FIRST_PROBLEM],
        problems=[answer for answer in answers if answer.status >= FIRST_PROBLEM],
    )


def _contents(status: str, what: str, content: Json) -> Iterator[Content]:
    for media_type, media in content.items():
        kind = "server-sent events" if media_type == EVENT_STREAM else kind_of(media.get("schema") or {})
        example = media.get("example")
        if example is not None and not isinstance(example, str):
            example = json.dumps(example, indent=2, ensure_ascii=False)
        yield Content(status, what, media_type, kind, example or "")
