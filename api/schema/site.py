"""/schema: the OpenAPI document and its page, both made on the first request."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from litestar import MediaType, Request
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

METHODS = ("get", "post", "put", "patch", "delete")
_LIMITS = {
    "minimum": "from {}", "maximum": "to {}", "minLength": "{} characters or more", "maxLength": "{} characters or fewer",
    "minItems": "{} or more", "maxItems": "{} or fewer", "format": "{}", "pattern": "like {}",
}  # fmt: skip


def openapi_config(examples: Examples) -> OpenAPIConfig:
    """Litestar's configuration of the document: paths, title, description."""
    return OpenAPIConfig(
        title="ragkv",
        version=__version__,
        description=DESCRIPTION,
        servers=[Server(url="/", description="This service.")],
        path="/schema",
        render_plugins=[
            _Form("/", MediaType.HTML, examples, page_of),
            _Form("/openapi.json", MediaType.JSON, examples, msgspec.json.encode),
        ],
        use_handler_docstrings=True,
        operation_id_creator=_operation_id,
    )


def page_of(document: Json) -> bytes:
    """The page as HTML."""
    groups: dict[str, list[tuple[str, str, Json]]] = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                groups.setdefault(item[method]["tags"][0], []).append((method, path, item[method]))
    meaning = {tag["name"]: tag["description"] for tag in document["tags"]}
    types = document["components"]["schemas"]
    functions = {"kind_of": kind_of, "kind_of_content": kind_of_content, "example_in": example_in}
    page = render("schema.html", info=document["info"], groups=groups, types=types, meaning=meaning, **functions)
    return page.encode()


def kind_of(schema: Json) -> str:
    """A schema in a few words: the kind of value, and its limits."""
    stated = [(text, schema[name]) for name, text in _LIMITS.items() if name in schema]
    limits = [
        text.format(int(limit) if isinstance(limit, float) and limit.is_integer() else limit) for text, limit in stated
    ]
    return f"{_bare(schema)} ({', '.join(limits)})" if limits else _bare(schema)


def kind_of_content(media_type: str, media: Json) -> str:
    """The kind of a body or a response of this media type."""
    return "server-sent events" if media_type == EVENT_STREAM else kind_of(media.get("schema") or {})


def example_in(media: Json) -> str:
    """The example of a body or a response as text; empty without one."""
    example = media.get("example", "")
    return example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)


def _operation_id(handler: object, method: Method, path: list[str | PathParameterDefinition]) -> str:
    """Operation id, for generated clients: get_documents_chunks."""
    parts = [part for part in path if isinstance(part, str) and part != "v1"]
    suffix = ["one"] if path and not isinstance(path[-1], str) else []
    return "_".join([HttpMethod(method).value.lower(), *parts, *suffix])


class _Form(OpenAPIRenderPlugin):
    """The document in one form, made on the first request."""

    def __init__(self, path: str, media_type: MediaType, examples: Examples, encode: Callable[[Json], bytes]) -> None:
        super().__init__(path=path, media_type=media_type)
        self._examples = examples
        self._encode = encode
        self._encoded: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: Json) -> bytes:
        if self._encoded is None:
            self._encoded = self._encode(document_of(request.app, self._examples))
        return self._encoded


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
