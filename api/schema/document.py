"""The OpenAPI document: Litestar's, made accurate and complete.

Bodies and responses are described by msgspec, which reads and writes them: the document states exactly what it accepts.
API keys, streams, descriptions of parameters, and an example of everything are added.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from litestar import Litestar, Response
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg
from litestar.response import File, ServerSentEvent, Stream
from litestar.routes import HTTPRoute

from api.access.auth import PUBLIC, Requires
from api.http.sse import EVENT_STREAM, EventStream

UNIONS = (Union, type(int | str))
Json = dict[str, Any]

JSON, BYTES = "application/json", "application/octet-stream"
BINARY: Json = {"schema": {"type": "string", "format": "binary"}}
REF = "#/components/schemas/{name}"
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "API key: `Authorization: Bearer rk_...`"},
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "API key, as an alternative to `Authorization`.",
    },
}
TAGS = {
    "documents": "Upload, list, update and delete documents.",
    "collections": "Group documents in collections. Paths and fields accept the id or the name of a collection.",
    "questions": "Ask questions, search for passages, rate answers, read the log of questions, and evaluate the service on them.",
    "kv": "Inspect, pin, evict, rebuild and verify stored KV: the attention keys and values of chunks.",
    "keys": "Create, list and revoke the tenant's API keys.",
    "webhooks": "Tell other programs when a document is ready or has failed.",
    "data sources": "Keep collections in sync with folders and object stores.",
    "audit": "List who changed what, and when.",
    "statistics": "Latency, token counts and cache hit rates of the tenant's questions.",
    "health": "Liveness, readiness and metrics.",
    "openai: models": "List the models of the OpenAI-compatible API: the served model, and MODEL@COLLECTION for each collection.",
    "openai: chat": "Create chat completions, answered from the documents of a collection.",
    "openai: responses": "Create responses with file search.",
    "openai: embeddings": "Embed texts with the encoder that finds passages.",
    "openai: files": "Upload files, to be attached to vector stores.",
    "openai: vector stores": "Manage vector stores, which are collections, and their files.",
}
LAST_MODIFIED = {"schema": {"type": "string"}, "description": "Time of the last modification, as an HTTP date."}
PARAMETERS = {
    "document_id": "Document id: 32 hexadecimal digits.",
    "collection": "Collection id or name.",
    "number": "Page of the document, counted from 1.",
    "key_id": "API key id.",
    "webhook_id": "Webhook id.",
    "data_source_id": "Data source id.",
    "cursor": "Value of `next` from the previous page. Omit it for the first page.",
    "limit": "Maximum number of items on a page.",
    "status": "Return only documents with this status.",
    "name": "Return only documents whose name contains this text, ignoring case.",
    "metadata": 'Return only documents that match this metadata filter, a JSON object: `{"year": [2023, 2024]}`.',
    "until": "`closed`: stream until the connection is closed. `finished`: end the stream once every document is finished.",
    "window": "Period of the statistics: the last hour, day or week.",
    "model": "Model id, as listed by `/v1/models`.",
    "file_id": "File id.",
    "vector_store_id": "Vector store id or name.",
    "batch_id": "File batch id.",
    "run_id": "Id of the evaluation.",
    "answer_id": "Id of the answer: of `/v1/ask`, or of a chat completion or response.",
    "rating": "Return only questions with this rating: `up`, `down`, `any` or `none`.",
    "since": "Return only questions asked at this time or later: ISO 8601, UTC unless a time zone is given.",
    "before": "Return only questions asked before this time: ISO 8601, UTC unless a time zone is given.",
    "text": "Return only questions that contain this text, ignoring case.",
    "purpose": "Return only files with this purpose.",
}

FIELDS = {
    "id": "Unique id.",
    "name": "Name.",
    "object": "Type of the object.",
    "collection_id": "Id of the collection.",
    "document_id": "Id of the document.",
    "vector_store_id": "Id of the vector store.",
    "created_at": "Time of creation.",
    "updated_at": "Time of the last change.",
    "last_used_at": "Time of the last use, accurate to about half a minute; null before the first.",
    "next": "Cursor of the next page; null on the last page.",
}
"""Descriptions of fields that mean the same in every type. Others have theirs at the field: a string in `Annotated`."""

DATA = "Data of the event, encoded as JSON."
OTHER: Json = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": DATA}},
    "required": ["data"],
}
"""An event with data of no stated type."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `method` in lower case."""

    method: str
    path: str
    handler: HTTPRouteHandler

    @property
    def status(self) -> str:
        """Status code of a successful response."""
        return str(int(self.handler.status_code))

    @property
    def scope(self) -> str | None:
        """The scope that the API key needs; None for a public endpoint."""
        if self.handler.opt.get(PUBLIC):
            return None
        return next(guard.scope for guard in self.handler.resolve_guards() if isinstance(guard, Requires))

    @property
    def body(self) -> Any:
        """The type of the body; None without one."""
        field = self.handler.parsed_fn_signature.parameters.get("data")
        return None if field is None else field.annotation

    @property
    def is_form(self) -> bool:
        """Whether the body is a form with files."""
        field = self.handler.parsed_fn_signature.parameters.get("data")
        definition = None if field is None else field.kwarg_definition
        return isinstance(definition, BodyKwarg) and definition.media_type == RequestEncodingType.MULTI_PART

    @property
    def answers(self) -> list[Any]:
        """Types of a successful response: those encoded as JSON, `File` or `ServerSentEvent`; empty for no content."""
        returned = self.handler.parsed_fn_signature.return_type.annotation
        kinds = get_args(returned) if get_origin(returned) in UNIONS else (returned,)
        contents = (get_args(kind)[0] if get_origin(kind) is Response else kind for kind in kinds)
        return [kind for kind in contents if kind is not type(None)]


def routes_of(app: Litestar) -> Iterator[Route]:
    """The documented endpoints, in the order of the app's routes."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in route.route_handler_map.items():
                if handler.resolve_include_in_schema():
                    yield Route(str(method).lower(), route.path_format, handler)


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples for the document. `of_type`: functions that give one of a type as JSON, or None; of a type of errors the
    one with this status and detail. `streams` and `lines` (of JSON lines) are by path."""

    of_type: tuple[Callable[[Any, int, str], Any], ...]
    streams: Mapping[str, EventStream]
    lines: Mapping[str, str]


class _Media:
    """Bodies and responses of the routes in the document: the schema of each, and an example. `types`: of the JSON in
    bodies, responses and events."""

    def __init__(self, routes: list[Route], examples: Examples) -> None:
        self.types: list[Any] = []
        for route in routes:
            if route.body is not None and not route.is_form:
                self.types.append(route.body)
            self.types += filter(_is_json, route.answers)
            self.types += (spec.data_container for spec in (route.handler.responses or {}).values())
            if stream := examples.streams.get(route.path):
                self.types += stream.kinds.values()
        kinds = {repr(kind): kind for kind in self.types}
        schemas, self.components = msgspec.json.schema_components(list(kinds.values()), ref_template=REF)
        for component in self.components.values():
            component["description"] = cleandoc(component.get("description", ""))
        self._schemas = dict(zip(kinds, schemas, strict=True))
        self._examples = examples

    def of_json(self, kind: Any, status: int = HTTPStatus.OK, detail: str = "") -> Json:
        return {"schema": self._schemas[repr(kind)]} | self.example(kind, status, detail)

    def example(self, kind: Any, status: int = HTTPStatus.OK, detail: str = "") -> Json:
        """The member `example`, if there is one."""
        values = (example_of(kind, status, detail) for example_of in self._examples.of_type)
        return next(({"example": value} for value in values if value is not None), {})

    def of_stream(self, path: str) -> Json:
        """The schema of a stream's events, and an example as sent."""
        stream = self._examples.streams[path]
        data = {"type": "string", "contentMediaType": "application/json", "description": DATA}
        events = [
            {
                "type": "object",
                "properties": {
                    "event": {"const": name, "description": "Name of the event."},
                    "data": data | {"contentSchema": self._schemas[repr(kind)]},
                },
                "required": ["event", "data"],
            }
            for name, kind in stream.kinds.items()
        ]
        schema = {"oneOf": events} if events else OTHER
        return {"schema": schema, "example": b"".join(message.encode() for message in stream.example).decode()}

    def of_response(self, content: Json, route: Route) -> Json:
        """The content of a successful response. Media types that the handler states itself are kept."""
        for kind in route.answers:
            if _is_json(kind):
                content = {media: self.of_stream(route.path) for media in content if media == EVENT_STREAM}
                content[JSON] = self.of_json(kind)
            elif kind is ServerSentEvent:
                content = {media: shown for media, shown in content.items() if media == JSON and len(route.answers) > 1}
                content |= {EVENT_STREAM: self.of_stream(route.path)}
            elif kind is Stream:
                line = self._examples.lines[route.path]
                content = {media: {"schema": {"type": "string"}, "example": line} for media in content}
            elif kind is File:
                content = {BYTES: BINARY}
            elif kind is bytes:
                content = dict.fromkeys(content, BINARY)
        return content


def document_of(app: Litestar, examples: Examples) -> Json:
    """The document of an app."""
    document: Json = app.openapi_schema.to_schema()
    routes = list(routes_of(app))
    forms = [route.body for route in routes if route.is_form]
    media = _Media(routes, examples)
    for route in routes:
        _complete(document["paths"][route.path][route.method], route, media)
    schemas = dict(_used(document["paths"], document["components"]["schemas"] | media.components))
    for form in forms:  # Litestar neither describes them nor says whether they are closed
        schemas[form.__name__]["description"] = cleandoc(form.__doc__)
        if form.__struct_config__.forbid_unknown_fields:
            schemas[form.__name__]["additionalProperties"] = False
    texts = field_texts([*media.types, *forms])
    for name, component in schemas.items():
        for field, schema in component.get("properties", {}).items():
            only = "Always `{}`.".format(*schema["enum"]) if len(schema.get("enum", ())) == 1 else ""
            other_type = next((kind["description"] for kind in schema.get("anyOf", ()) if "description" in kind), "")
            text = texts.get(name, {}).get(field) or other_type or FIELDS.get(field) or only
            schema.setdefault("description", text)
    document["components"] = {"schemas": schemas, "securitySchemes": KEYS}
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    return document


def _is_json(kind: Any) -> bool:
    """Whether a type is a struct or a list of structs; others are files and streams."""
    inner = kind.__args__[0] if get_origin(kind) is list else kind
    return isinstance(inner, type) and issubclass(inner, msgspec.Struct)


def _complete(operation: Json, route: Route, media: _Media) -> None:
    operation["security"] = [] if route.scope is None else [{name: [route.scope]} for name in KEYS]
    for parameter in operation.get("parameters", ()):
        parameter.setdefault("description", PARAMETERS.get(parameter["name"], ""))
    if "requestBody" in operation:
        if route.is_form:
            for form in operation["requestBody"]["content"].values():
                form.update(media.example(route.body))
        else:
            operation["requestBody"]["content"] = {JSON: media.of_json(route.body)}
    responses = operation["responses"]
    good = responses[route.status]
    good["description"] = route.handler.response_description or HTTPStatus(int(route.status)).phrase
    if content := media.of_response(good.get("content") or {}, route):
        good["content"] = content
    if "last-modified" in good.get("headers", ()):
        good["headers"]["last-modified"] |= LAST_MODIFIED
    for status, spec in (route.handler.responses or {}).items():
        body = media.of_json(spec.data_container, int(status), spec.description)
        content = {getattr(spec.media_type, "value", spec.media_type): body}
        responses[str(int(status))] = {"description": spec.description, "content": content}


def field_texts(types: list[Any]) -> dict[str, dict[str, str]]:
    """Descriptions of fields, by type and field: of these types, and of all types in their fields."""
    texts: dict[str, dict[str, str]] = {}
    waiting = [*types]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and kind.__name__ not in texts and (_is_json(kind) or is_dataclass(kind)):
            hints = get_type_hints(kind, include_extras=True)
            texts[kind.__name__] = {}
            for name, hint in hints.items():  # a string in an `Annotated` type, or in a member of a union
                members = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
                notes = (note for member in members for note in getattr(member, "__metadata__", ()))
                texts[kind.__name__][name] = next((note for note in notes if isinstance(note, str)), "")
            waiting += hints.values()
    return texts


def _used(part: Any, schemas: Json, seen: set[str] | None = None) -> Iterator[tuple[str, Json]]:
    """The schemas that a part of the document refers to, and those that these refer to."""
    seen = set() if seen is None else seen
    for name in _references(part):
        if name not in seen:
            seen.add(name)
            yield name, schemas[name]
            yield from _used(schemas[name], schemas, seen)


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[-1]
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)
