"""/schema: the OpenAPI document and its page, both made on the first request."""

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

from api.schema.document import document_of
from api.schema.page import page_of
from api.schema.streams import Json
from ragkv import __version__

DESCRIPTION = """Question answering over documents, with citations. The model processes the chunks of each document once, when \
it is uploaded; the prompt of a question is stitched from their stored keys and values instead of being computed again.

Requests with unknown fields are rejected. Numbers and booleans may also be sent as strings.

Send an API key as `Authorization: Bearer rk_...`. A service on the \
loopback address without a sign-in provider requires no key until the first one is created. Errors are returned as \
problem details (RFC 9457), and in OpenAI's error format under the paths of OpenAI's API."""


def openapi_config() -> OpenAPIConfig:
    """Litestar's configuration of the document: paths, title, description."""
    document = _Document()
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


def _operation_id(handler: object, method: Method, path: list[str | PathParameterDefinition]) -> str:
    """Operation id, for generated clients: get_documents_chunks."""
    parts = [part for part in path if isinstance(part, str) and part != "v1"]
    suffix = ["one"] if path and not isinstance(path[-1], str) else []
    return "_".join([HttpMethod(method).value.lower(), *parts, *suffix])


class _Document:
    """The document as JSON and as a page, for both plugins."""

    app: Litestar

    @cached_property
    def whole(self) -> Json:
        return document_of(self.app)

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
