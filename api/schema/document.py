"""The OpenAPI document: what Litestar knows of the ways in, made exact and complete.

Bodies and answers are described by msgspec, which reads and writes them: what it accepts and what the document says are the
same. Added are the API keys, the streams, what parameters mean, and an example of everything.
"""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, get_origin

import msgspec
from litestar import Litestar
from litestar.response import File, ServerSentEvent

from api.schema.examples import example_of
from api.schema.openai_examples import openai_example_of
from api.schema.streams import STREAMS, media_of
from api.schema.ways import Way, ways_of

Json = dict[str, Any]

JSON, EVENTS, BYTES = "application/json", "text/event-stream", "application/octet-stream"
REF = "#/components/schemas/{name}"
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key: `Authorization: Bearer rk_...`"},
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "An API key, for want of the other.",
    },
}
TAGS = {
    "documents": "Upload files, see how far they are, change and remove them.",
    "collections": "Named sets of documents. A collection is named by its id or its name everywhere.",
    "questions": "Ask, or search without an answer.",
    "kv": "What is kept of keys and values, and what can be done about it.",
    "keys": "API keys of the tenant.",
    "statistics": "What the service did for the tenant's questions.",
    "health": "Whether the service works, and its figures.",
}
PARAMETERS = {
    "document_id": "The document's id: 32 hexadecimal digits.",
    "collection": "A collection's id, or its name.",
    "key_id": "The key's id.",
    "cursor": "`next` of the page before; none for the first page.",
    "limit": "How many on a page.",
    "status": "Only documents in this state.",
    "name": "A part of the name, in any case.",
    "metadata": 'A filter over metadata, a JSON object: `{"year": [2023, 2024]}`.',
    "until": "`finished`: the stream ends when no document is left to be read.",
    "window": "The last hour, day or week.",
    "model": "A model's id: one of `/v1/models`.",
    "file_id": "The file's id.",
    "vector_store_id": "A vector store's id, or its name.",
    "batch_id": "The id of the batch of files.",
    "purpose": "Only files for this purpose.",
}


def document_of(app: Litestar) -> Json:
    """The whole document, for one app."""
    document: Json = app.openapi_schema.to_schema()
    ways = list(ways_of(app))
    describe, components = _described(ways)
    for way in ways:
        _complete(document["paths"][way.path][way.method], way, describe)
    schemas = document["components"]["schemas"] | components
    document["components"] = {"schemas": dict(_used(document["paths"], schemas)), "securitySchemes": KEYS}
    document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    return document


def _described(ways: list[Way]) -> tuple[Callable[[Any], Json], Json]:
    """How each JSON type of the ways is described, and the components that this refers to."""
    kinds = {repr(kind): kind for way in ways for kind in _json_types(way)}
    schemas, components = msgspec.json.schema_components(list(kinds.values()), ref_template=REF)
    by_name = dict(zip(kinds, schemas, strict=True))
    for component in components.values():
        component["description"] = cleandoc(component.get("description", ""))
    return lambda kind: by_name[repr(kind)], components


def _json_types(way: Way) -> Iterator[Any]:
    if way.body is not None and not way.is_form:
        yield way.body
    yield from (kind for kind in way.answers if _is_json(kind))
    yield from (spec.data_container for spec in (way.handler.responses or {}).values())
    if stream := STREAMS.get(way.path):
        yield from stream.kinds.values()


def _is_json(kind: Any) -> bool:
    """Whether it is a struct, or a list of some: the others are files and streams."""
    inner = kind.__args__[0] if get_origin(kind) is list else kind
    return isinstance(inner, type) and issubclass(inner, msgspec.Struct)


def _complete(operation: Json, way: Way, describe: Callable[[Any], Json]) -> None:
    operation["security"] = [] if way.scope is None else [{name: [way.scope]} for name in KEYS]
    for parameter in operation.get("parameters", ()):
        parameter.setdefault("description", PARAMETERS.get(parameter["name"], ""))
    if "requestBody" in operation:
        operation["requestBody"]["content"] = _body(operation["requestBody"]["content"], way, describe)
    responses = operation["responses"]
    good = responses[way.status]
    good["description"] = way.handler.response_description or HTTPStatus(int(way.status)).phrase
    if content := _answer(good.get("content") or {}, way, describe):
        good["content"] = content
    if "last-modified" in good.get("headers", ()):
        good["headers"]["last-modified"]["schema"] = {"type": "string"}  # as HTTP writes dates, not as JSON does
    for status, spec in (way.handler.responses or {}).items():
        media = {"schema": describe(spec.data_container)}
        if example := _example(spec.data_container, int(status), spec.description):
            media["example"] = example
        content = {getattr(spec.media_type, "value", spec.media_type): media}
        responses[str(int(status))] = {"description": spec.description, "content": content}


def _body(content: Json, way: Way, describe: Callable[[Any], Json]) -> Json:
    if not way.is_form:
        return {JSON: _media(way.body, describe)}
    for media in content.values():
        if example := _example(way.body):
            media["example"] = example
    return content


def _answer(content: Json, way: Way, describe: Callable[[Any], Json]) -> Json:
    """What comes back when all is well. What the handler says of its own media types stays."""
    for kind in way.answers:
        if _is_json(kind):
            content = {media: media_of(STREAMS[way.path], describe) for media in content if media == EVENTS}
            content[JSON] = _media(kind, describe)
        elif kind is ServerSentEvent:
            content = {media: said for media, said in content.items() if media == JSON and len(way.answers) > 1}
            content |= {EVENTS: media_of(STREAMS[way.path], describe)}
        elif kind is File:
            content = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
    return content


def _media(kind: Any, describe: Callable[[Any], Json]) -> Json:
    example = _example(kind)
    return {"schema": describe(kind)} | ({} if example is None else {"example": example})


def _example(kind: Any, status: int = HTTPStatus.OK, detail: str = "") -> Any:
    """None where there is none."""
    native = example_of(kind, status, detail)
    return openai_example_of(kind, status, detail) if native is None else native


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
