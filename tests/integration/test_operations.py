"""What people who run the service see of it: ids of requests, lines of the log, figures."""

import json
import logging
import re
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import select

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.observe import logs
from ragkv.observe.traces import CAUSE_HEADER
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tables import JobRow
from ragkv.service.keys.keys import issue_key
from ragkv.service.parts import Parts
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import ADA, Client, upload

QUESTION = "Who wrote the first program?"


class Lines(logging.Handler):
    """What was logged, as the log's own lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logs.formatter(as_json=True, process="serve"))
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))

    def of(self, request_id: str) -> list[dict[str, object]]:
        return [line for line in self.lines if line.get("request_id") == request_id]


@pytest.fixture
def logged() -> Iterator[Lines]:
    root, handler = logging.getLogger(), Lines()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def figures(client: httpx.Client, **headers: str) -> dict[str, float]:
    """Samples by name and labels."""
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = (line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


class TestRequestIds:
    def test_every_answer_has_one_also_where_nothing_is_found(self, client: Client):
        ids = {
            client.get(path).headers["x-request-id"] for path in ("/healthz", "/v1/documents", "/nowhere", "/schema")
        }

        assert len(ids) == 4

    def test_a_sane_one_is_kept_and_any_other_replaced(self, client: Client):
        kept = client.get("/v1/documents", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"]
        replaced = client.get("/v1/documents", headers={"X-Request-ID": "not mine"}).headers["x-request-id"]

        assert kept == "mine-1"
        assert re.fullmatch("[0-9a-f]{32}", replaced)

    def test_problems_name_it(self, client: Client):
        for path in ("/v1/documents/0123", "/nowhere", "/v1/documents?limit=x"):
            response = client.get(path)
            assert response.json()["request_id"] == response.headers["x-request-id"]

    def test_jobs_remember_it(self, client: Client, parts: Parts):
        response = upload(client, headers={"X-Request-ID": "upload-1"})
        assert response.status_code == 202

        with parts.database.reading() as session:
            assert [cause[CAUSE_HEADER] for cause in session.scalars(select(JobRow.cause))] == ["upload-1"]


class TestLog:
    def test_a_refused_request_names_its_field(self, client: Client, logged: Lines, subtests: pytest.Subtests):
        chat = {"model": "m", "messages": [{"role": "user", "content": "Who?"}]}
        form = {"files": {"file": ("a.md", b"x")}, "data": {"purpose": "user_data", "expires_after[days]": "1"}}
        for method, path, sent, place in [
            ("POST", "/v1/search", {"json": {"question": "x?", "query": "secret"}}, "query"),
            ("POST", "/v1/search", {"json": {"question": 1}}, "question"),
            ("POST", "/v1/search", {"json": {"question": "x?", "two words": 1}}, "(not a name)"),
            ("POST", "/v1/search", {"json": {"question": "x?", "x" * 100: 1}}, "(not a name)"),
            ("GET", "/v1/documents?limit=x", {}, "limit"),
            ("POST", "/v1/chat/completions", {"json": chat | {"reasoning_effort": "high"}}, "reasoning_effort"),
            ("POST", "/v1/chat/completions", {"json": chat | {"messages": [{"role": "x"}]}}, "messages[0].role"),
            ("POST", "/v1/chat/completions", {"json": chat}, "model"),
            ("POST", "/v1/files", form, "expires_after"),
            ("GET", "/v1/documents", {}, None),
            ("POST", "/v1/search", {"content": b"{"}, None),
        ]:
            with subtests.test(path=path, place=place):
                answer = client.request(method, path, **sent)

                (line,) = [line for line in logged.of(answer.headers["x-request-id"]) if "route" in line]
                assert (line["status"], line["invalid_field"]) == (answer.status_code, place)
                assert "secret" not in repr(line)

    def test_a_request_is_one_line_with_its_route_and_caller(self, client: Client, parts: Parts, logged: Lines):
        key = issue_key(parts.default_collection.tenant_id, "k", ["read"], parts.database)
        headers = {"X-Request-ID": "r-1", "Authorization": f"Bearer {key.key}"}
        client.get("/v1/documents/0123456789abcdef?name=private", headers=headers)

        (line,) = [line for line in logged.of("r-1") if line["logger"] == "ragkv.access"]
        assert line["ms"] > 0
        assert {name: line[name] for name in ("method", "route", "status", "tenant_id", "key_id", "level")} == {
            "method": "GET",
            "route": "/v1/documents/{document_id}",
            "status": 404,
            "tenant_id": parts.default_collection.tenant_id,
            "key_id": key.view.id,
            "level": "info",
        }

    def test_a_line_names_what_was_touched_and_made_by_whom_from_where(
        self, client: Client, parts: Parts, logged: Lines
    ):
        owner = issue_key(parts.default_collection.tenant_id, "k", ["admin"], parts.database)
        headers = {"Authorization": f"Bearer {owner.key}"}
        document_id = upload(client, headers=headers | {"X-Request-ID": "r-up"}).json()["id"]
        client.delete(f"/v1/documents/{document_id}", headers=headers | {"X-Request-ID": "r-gone"})
        client.get("/v1/collections/secret plans", headers=headers | {"X-Request-ID": "r-name"})
        made = client.post("/v1/keys", json={"name": "x"}, headers=headers | {"X-Request-ID": "r-key"}).json()["view"]
        client.delete(f"/v1/keys/{made['id']}", headers=headers)

        lines = {name: logged.of(name)[-1] for name in ("r-up", "r-gone", "r-name", "r-key")}
        assert [lines[name]["ids"] for name in lines] == [[document_id], [document_id], [], [made["id"]]]
        assert all(line["client"] for line in lines.values())
        assert "secret plans" not in str(lines)
        shown = next(key for key in client.get("/v1/keys", headers=headers).json()["items"] if key["id"] == made["id"])
        assert (shown["created_by"], shown["revoked_by"]) == (owner.view.id, owner.view.id)

    def test_questions_keys_and_texts_are_in_no_line(
        self, client: Client, parts: Parts, answerable: str, logged: Lines
    ):
        key = issue_key(parts.default_collection.tenant_id, "k", ["write"], parts.database)
        headers = {"X-Request-ID": "r-2", "Authorization": f"Bearer {key.key}"}
        client.post("/v1/ask", json={"question": QUESTION}, headers=headers)
        client.post("/v1/search", json={"query": QUESTION}, headers=headers)
        upload(client, ADA + b"More.", headers=headers)

        text = json.dumps(logged.of("r-2"))
        assert "/v1/ask" in text
        for secret in (QUESTION, key.key, "Charles Babbage"):
            assert secret not in text

    def test_probes_are_logged_at_the_level_debug(self, client: Client, logged: Lines):
        client.get("/readyz", headers={"X-Request-ID": "probe"})

        assert {line["level"] for line in logged.of("probe")} == {"debug"}


class TestFigures:
    def test_questions_are_counted_by_mode_with_their_tokens_and_times(self, client: Client, answerable: str):
        before = figures(client)
        for mode in ("stitched", "full"):
            done = client.post("/v1/ask", json={"question": QUESTION, "mode": mode}).json()
        after = figures(client)

        def more(name: str) -> float:
            return after[name] - before.get(name, 0.0)

        assert more('ragkv_asks_total{mode="full",outcome="answered"}') == 1
        assert more('ragkv_ttft_seconds_count{mode="stitched"}') == 1
        assert more('ragkv_engine_ttft_seconds_count{mode="full"}') == 1
        assert more("ragkv_retrieve_seconds_count") == 2
        assert sum(more(name) for name in after if name.startswith("ragkv_kv_load_seconds_count")) == 1
        assert more('ragkv_prompt_tokens_total{origin="computed"}') >= done["usage"]["computed"] > 0
        assert more("ragkv_completion_tokens_total") == 2 * done["usage"]["completion"]
        assert more('ragkv_http_requests_total{method="POST",route="/v1/ask",status="200"}') == 2

    def test_what_cannot_be_answered_is_counted_by_whose_fault_it_is(
        self, client: Client, parts: Parts, engine, ingest: IngestParts
    ):
        before = figures(client)
        client.post("/v1/ask", json={"question": QUESTION})  # nothing was uploaded
        ingest_document(str(upload(client).json()["id"]), ingest)
        engine.fail_after = 0
        client.post("/v1/ask", json={"question": QUESTION})
        after = figures(client)

        for outcome in ("refused", "failed"):
            name = f'ragkv_asks_total{{mode="stitched",outcome="{outcome}"}}'
            assert after[name] - before.get(name, 0) == 1

    def test_what_there_is_comes_from_the_database(self, client: Client, parts: Parts, answerable: str):
        upload(client, ADA + b"More.")
        seen = figures(client)

        assert seen['ragkv_documents{status="ready"}'] == 1
        assert seen['ragkv_documents{status="accepted"}'] == 1
        assert seen['ragkv_jobs{status="done"}'] == 1
        assert seen["ragkv_queue_depth"] >= 1
        assert seen['ragkv_kv_bytes{tier="disk"}'] > seen['ragkv_kv_files{tier="disk"}'] > 0
        assert {seen[f'ragkv_part_up{{part="{part}"}}'] for part in ("engine", "database", "redis")} == {1}

    def test_what_workers_did_is_counted_in_redis(self, client: Client, parts: Parts, ingest: IngestParts):
        working = IngestParts(parts, parts.worker_counters, EchoEngine(parts.settings))
        working.parser = ingest.parser
        document_id = str(upload(client).json()["id"])
        ingest_document(document_id, working)
        seen, document = figures(client), client.get(f"/v1/documents/{document_id}").json()

        assert seen['ragkv_ingest_documents_total{outcome="ready"}'] == 1
        assert seen['ragkv_ingest_tokens_total{origin="computed"}'] == document["tokens"]
        for stage in ("parse", "embed", "prefill"):
            assert seen[f'ragkv_ingest_stage_seconds_count{{stage="{stage}"}}'] == 1
            assert seen[f'ragkv_ingest_stage_seconds_sum{{stage="{stage}"}}'] > 0

    def test_they_are_shown_also_while_redis_is_away(self, client: Client, redis_server: EmbeddedRedis):
        redis_server.stop()
        seen = figures(client)

        assert seen['ragkv_part_up{part="redis"}'] == 0
        assert "ragkv_queue_depth" not in seen
        assert 'ragkv_part_up{part="database"}' in seen

    def test_routes_are_templates_and_methods_are_known(self, client: Client, answerable: str):
        client.get(f"/v1/documents/{answerable}")
        client.get("/nowhere/at/all")
        client.request("BREW", "/v1/documents")

        labels = [name for name in figures(client) if name.startswith("ragkv_http")]
        assert any('route="/v1/documents/{document_id}"' in name for name in labels)
        assert any('route="(none)"' in name for name in labels)
        assert not any(answerable in name or "nowhere" in name or "BREW" in name for name in labels)


class TestWhoMayScrape:
    def test_once_there_is_a_key_the_owners_alone(self, client: Client, parts: Parts):
        assert client.get("/metrics").status_code == 200
        owner = issue_key(parts.default_collection.tenant_id, "prometheus", ["read"], parts.database).key
        other = issue_key_by_name("acme", "theirs", ["admin"], parts.database).key

        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": f"Bearer {other}"}).status_code == 403
        assert figures(client, Authorization=f"Bearer {owner}")
