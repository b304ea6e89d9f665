"""The OpenAPI document held against the service: what it says may be sent is sent, and what comes back is as it
says."""

import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from api.app import create_app
from api.http.sse import EVENT_STREAM
from api.schema.document import BYTES, Json
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.errors import Conflict
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import ingest_over, lend_models
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import ADA, event_fields, serving, upload

FEW, MANY = 6, 60
"""Random requests for each way: good ones, and as many bad ones."""
PATIENCE_S = 30
PLAIN = "text/plain"
PNG = "image/png"

Choice = Callable[[object], bool]
"""Which ids that were made up are exchanged for ids of what is there."""
_IN_WORDS = re.compile(r"(?i)[-+]?[\d.]+|true|false|null|none")

CONFIG = {
    "generation": {
        "with-security-parameters": False
    },  # the key is right; without one, and with others, is tried anyway
    "checks": {
        # What has the right form may name what is not there, or not go together.
        "positive_data_acceptance": {"expected-statuses": ["2xx", 400, 401, 403, 404, 409, 413, 422]},
        # What is longer than its schema allows is too large.
        "negative_data_rejection": {
            "expected-statuses": [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
        },
    },
}


@dataclass
class World:
    """A service with one of everything, for a tenant with a key."""

    client: httpx.Client
    ingest: IngestParts
    reading: threading.Lock
    ids: dict[str, str] = field(default_factory=dict)

    def mend(self) -> None:
        """What an earlier request took away or spoilt is there again."""
        if self._of("/v1/documents/{document_id}").get("status") != "ready":
            self._upload()
        if not self._of("/v1/files/{file_id}"):
            form = {"files": {"file": ("ada.md", ADA)}, "data": {"purpose": "assistants"}}
            self.ids["file_id"] = self.client.post("/v1/files", **form).json()["id"]
        if self._of("/v1/vector_stores/{vector_store_id}/files/{file_id}").get("status") != "completed":
            with self.reading:
                made = self._make("/v1/vector_stores", file_ids=[self.ids["file_id"]])
                self.ids["vector_store_id"] = self.ids["collection"] = made
                for document_id in stuck_ids(self.ingest.parts.database):
                    ingest_document(document_id, self.ingest)
        if not self._of("/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}"):
            path = f"/v1/vector_stores/{self.ids['vector_store_id']}/file_batches"
            self.ids["batch_id"] = self._make(path, file_ids=[self.ids["file_id"]])
        self.ids["model"] = self.client.get("/v1/models").json()["data"][0]["id"]

    def _upload(self) -> None:
        """The same bytes may be there as a document that was spoilt."""
        with self.reading:
            found = upload(self.client).json()["id"]
            self.client.delete(f"/v1/documents/{found}")
            self.ids["document_id"] = upload(self.client).json()["id"]
            ingest_document(self.ids["document_id"], self.ingest)

    def _of(self, path: str) -> dict[str, Any]:
        """What is there under the present ids; nothing if it is gone."""
        try:
            response = self.client.get(path.format(**self.ids))
        except KeyError:
            return {}
        return response.json() if response.status_code == 200 else {}

    def _make(self, path: str, **body: Any) -> str:
        return str(self.client.post(path, json=body).json()["id"])


class Refusing(threading.Thread):
    """A worker that fails every document: tests upload what nobody wants to read, and others wait for the end of it."""

    def __init__(self, parts: Parts, reading: threading.Lock) -> None:
        super().__init__(daemon=True)
        self._parts = parts
        self._reading = reading
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            with self._reading:
                for document_id in stuck_ids(self._parts.database):
                    if lease := Lease.take(self._parts.database, document_id, "refusing"):
                        with suppress(Conflict):  # a request deleted it meanwhile
                            lease.fail("nobody reads here")


NOT_SENT = {"database", "gate", "queue", "settings"}
"""Fields of answers alone."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, language_model: Path, loaded: IngestParts) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("schema")
    chosen = Settings(
        data_dir=folder,
        model=str(language_model),
        chunk_tokens=64,
        requests_per_minute=0,
        tenant_requests_per_minute=0,
        refusals_per_minute=0,
    )
    with ExitStack() as stack:
        redis_server = EmbeddedRedis(chosen)
        redis_server.start()
        stack.callback(redis_server.stop)
        parts = Parts(chosen, EchoEngine(chosen))
        lend_models(parts, loaded)
        parts.prepare()
        stack.callback(parts.close)
        client = stack.enter_context(serving(parts))
        client.headers["Authorization"] = f"Bearer {issue_key_by_name('default', 'x', ['admin'], parts.database).key}"
        refusing = Refusing(parts, threading.Lock())
        refusing.start()
        stack.callback(refusing.stopping.set)
        yield World(client, ingest_over(parts, loaded), refusing._reading)


@pytest.fixture(scope="module")
def described(world: World) -> schemathesis.BaseSchema:
    config = schemathesis.Config.from_dict(CONFIG)
    url = f"{world.client.base_url}/schema/openapi.json"
    return schemathesis.openapi.from_url(url, config=config, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def document(world: World) -> Json:
    return dict(world.client.get("/schema/openapi.json").json())


@pytest.mark.parametrize(
    ("mode", "requests"),
    [
        pytest.param(GenerationMode.POSITIVE, FEW, id="good"),
        pytest.param(GenerationMode.NEGATIVE, FEW, id="bad"),
        pytest.param(GenerationMode.POSITIVE, MANY, id="many good", marks=pytest.mark.long),
        pytest.param(GenerationMode.NEGATIVE, MANY, id="many bad", marks=pytest.mark.long),
    ],
)
def test_the_service_is_as_it_is_described(
    described: schemathesis.BaseSchema, world: World, mode: GenerationMode, requests: int, subtests: pytest.Subtests
):
    """Over a real connection: no 5xx; statuses, media types and bodies as documented, for whatever is sent."""
    for found in described.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and _takes_anything(operation):
            continue
        with subtests.test(operation.label):
            world.mend()
            _try_out(operation, mode, requests, world)


def test_the_limits_of_the_description_are_those_of_the_service(
    described: schemathesis.BaseSchema, world: World, subtests: pytest.Subtests
):
    """What schemathesis calls coverage: every type, limit, member and method, each held and broken one at a time."""
    sent = 0
    for found in described.get_all_operations():
        operation = found.ok()
        with subtests.test(operation.label):
            world.mend()
            for case in described.iter_coverage_cases(
                operation, generation_modes=list(GenerationMode), generation_config=described.config.generation
            ):
                send(case, world, _always)
                sent += 1
    assert sent > 2500


def test_every_way_is_described(document: Json):
    for method, path, described in ways(document):
        where = f"{method} {path}"
        assert described["summary"] and described["description"] and described["tags"] and described["operationId"], (
            where
        )
        assert all(parameter["description"] for parameter in described.get("parameters", ())), where
        needed = {"401", "403", "429", "503"} if described["security"] else set()
        assert needed <= set(described["responses"]), where
        assert all(
            "example" in media or answer["content"].keys() & {BYTES, PLAIN, PNG}
            for answer in [described.get("requestBody", {}), *described["responses"].values()]
            for media in answer.get("content", {}).values()
        ), where


def test_no_field_of_a_body_or_query_has_the_name_of_a_part(document: Json, parts: Parts):
    """Litestar takes an invalid field of such a name for an invalid part, which is answered with 500."""
    parameters = {
        parameter["name"]
        for path in document["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
    }
    fields = {
        name for component in document["components"]["schemas"].values() for name in component.get("properties", ())
    }
    assert create_app(parts).dependencies.keys() & (fields | parameters) == NOT_SENT


def test_every_example_is_what_it_is_an_example_of(document: Json):
    examples = list(examples_of(document))
    for where, schema, example in examples:
        validator = jsonschema_rs.validator_for(schema | {"components": document["components"]})
        assert [str(error) for error in validator.iter_errors(example)] == [], where
    assert len(examples) > 400


def test_every_example_of_a_stream_ends_it(document: Json):
    lasts = {
        where: list(event_fields(media["example"]))[-1]
        for where, kind, media in medias(document)
        if kind == EVENT_STREAM
    }

    assert lasts.pop("post /v1/chat/completions")["data"] == "[DONE]"
    assert lasts.pop("post /v1/responses")["event"] == "response.completed"
    assert {last["event"] for last in lasts.values()} == {"done", "progress"}


def test_the_page_names_every_way_and_loads_nothing_from_elsewhere(world: World, document: Json):
    response = world.client.get("/schema", headers={"Authorization": ""})

    assert response.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in response.headers["content-security-policy"]
    assert all(path in response.text for _, path, _ in ways(document))
    loaded = re.findall(r"""(?:src|href)=["']([^"']*)["']""", response.text)
    assert all(url.startswith(("/", "#")) and not url.startswith("//") for url in loaded)
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=", response.text)
    assert all(world.client.get(url).status_code == 200 for url in {*loaded} if url.startswith("/"))


def ways(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, item in document["paths"].items():
        yield from ((method, path, described) for method, described in item.items())


def medias(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Everything that is sent or comes back: where, its media type, and what is said of it."""
    for method, path, described in ways(document):
        for answer in [described.get("requestBody", {}), *described["responses"].values()]:
            yield from ((f"{method} {path}", kind, media) for kind, media in answer.get("content", {}).items())


def examples_of(document: Json) -> Iterator[tuple[str, Json, Any]]:
    """Each example with its schema; of a stream each event, and its data where the schema says what it is."""
    for where, kind, media in medias(document):
        if kind != EVENT_STREAM and "example" in media:
            yield where, media["schema"], media["example"]
        if kind == EVENT_STREAM:
            for event in event_fields(media["example"]):
                yield where, media["schema"], event
                for described in media["schema"].get("oneOf", ()):
                    if described["properties"]["event"]["const"] == event["event"]:
                        yield where, described["properties"]["data"]["contentSchema"], json.loads(event["data"])


def _try_out(operation: schemathesis.APIOperation, mode: GenerationMode, requests: int, world: World) -> None:
    @settings(
        max_examples=requests, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_out(case: schemathesis.Case) -> None:
        send(case, world, _mostly)

    try_out()


def _takes_anything(operation: schemathesis.APIOperation) -> bool:
    """Whether it takes nothing but text in its path: every text is such a text, and looking for a wrong one takes half
    a second."""
    schemas = [parameter.definition["schema"] for parameter in operation.path_parameters]
    if operation.body or operation.query:
        return False
    return all(schema.get("type") == "string" and schema.keys() <= {"type", "description"} for schema in schemas)


def send(case: schemathesis.Case, world: World, chooses: Choice) -> None:
    """Send it, and hold what comes back against the description."""
    aim(case, world.ids, chooses)
    headers = {"Authorization": world.client.headers["Authorization"]}
    excluded = [negative_data_rejection] if _is_readable_otherwise(case.body) else []
    case.call_and_validate(headers=headers, timeout=PATIENCE_S, excluded_checks=excluded)


def aim(case: schemathesis.Case, ids: dict[str, str], chooses: Choice) -> None:
    """Let good requests name what is there, where chosen, and let no stream be without end."""
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        for name, value in (case.path_parameters or {}).items():
            if name in ids and chooses(value):
                case.path_parameters[name] = ids[name]
        if case.media_type == "application/json":
            known = _known(case.body, ids, chooses)
            if known != case.body:
                case.body = known
    if case.path == "/v1/collections/{collection}/events" and case.query.get("until", "closed") == "closed":
        case.query = {"until": "finished"}


def _is_readable_otherwise(value: object) -> bool:
    """Whether something in a body is a number or a boolean in other words: those are taken too."""
    if isinstance(value, dict | list):
        return any(map(_is_readable_otherwise, value.values() if isinstance(value, dict) else value))
    return value in (0, 1) if isinstance(value, int | float) else _IN_WORDS.fullmatch(str(value)) is not None


def _known(value: Any, ids: dict[str, str], chooses: Choice, name: str = "") -> Any:
    """The same with the ids of what is there, in the place of those that were made up."""
    if isinstance(value, dict):
        return {name: _known(inner, ids, chooses, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_known(inner, ids, chooses, name.removesuffix("s")) for inner in value]
    return ids[name] if value and name in ids and chooses(value) else value


def _always(value: object) -> bool:
    return True


def _mostly(value: object) -> bool:
    return zlib.crc32(repr(value).encode()) % 4 > 0
