"""The service over HTTP, with real parts around an engine that echoes."""

import threading
from contextlib import closing
from typing import Any

import httpx
import msgspec
import pytest
from litestar import get
from litestar.di import NamedDependency, Provide
from sqlalchemy import select

from api.access.auth import reading
from api.http.server import listen
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.errors import Rejected
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tables import QuestionRow
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from ragkv.threads import OWNER
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import ADA, Client, assert_problem, events_of, serving, upload, wait_until


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, max_upload_bytes=100_000)


class TestDocuments:
    def test_an_upload_is_accepted_and_the_same_bytes_again_are_the_same_document(self, client: Client):
        first, second = upload(client), upload(client, name="other.md")

        assert (first.status_code, second.status_code) == (202, 200)
        assert first.json()["id"] == second.json()["id"]
        assert first.json()["status"] == "accepted"
        shown = client.get(first.headers["location"])
        assert (shown.status_code, shown.json()["name"], shown.json()["bytes"]) == (200, "ada.md", len(ADA))

    def test_a_document_that_is_ready_says_so(self, client: Client, answerable: str):
        shown = client.get(f"/v1/documents/{answerable}").json()

        assert (shown["status"], shown["title"], shown["error"]) == ("ready", "Ada Lovelace", None)
        assert shown["chunks"] > 0

    def test_deleting_removes_it(self, client: Client, answerable: str):
        assert client.delete(f"/v1/documents/{answerable}").status_code == 204
        assert_problem(client.get(f"/v1/documents/{answerable}"), 404)
        assert_problem(client.delete(f"/v1/documents/{answerable}"), 404)

    def test_bad_uploads_are_refused_with_the_reason(self, client: Client):
        assert_problem(upload(client, b""), 422, "empty")
        assert_problem(client.post("/v1/documents", files={"nope": ("a.md", ADA)}), 400, "unknown field `nope`")
        assert_problem(client.post("/v1/documents", files={"collection": (None, "default")}), 400, "field `file`")
        assert_problem(client.post("/v1/documents", json={}), 415)

    def test_an_unknown_field_names_the_nearest_or_those_required(self, client: Client, subtests: pytest.Subtests):
        for path, body, hint in [
            ("/v1/ask", {"query": "x"}, "`query`: required: 'question'"),
            ("/v1/ask", {"question": "x", "history": [{"contents": "y"}]}, "did you mean 'content'?"),
            ("/v1/search", {"question": "x", "topk": 3}, "did you mean 'top_k'?"),
            ("/v1/collections", {"names": "papers"}, "did you mean 'name'?"),
            ("/v1/data-sources", {"path": "/srv"}, "`path`: required: 'location'"),
        ]:
            with subtests.test((path, body)):
                (refused,) = client.post(path, json=body).json()["errors"]
                assert refused["message"].startswith("Object contains unknown field")
                assert refused["message"].endswith(hint)

    def test_too_large_a_file_is_refused(self, client: Client, settings: Settings):
        assert_problem(upload(client, b"x" * (settings.max_upload_bytes + 1)), 413, "RAGKV_MAX_UPLOAD_BYTES")
        assert_problem(upload(client, b"x" * 1_000_000), 413, "RAGKV_MAX_UPLOAD_BYTES")

    def test_too_large_a_body_is_refused_with_the_limit_of_its_path(self, client: Client, subtests: pytest.Subtests):
        for path, limit in [
            ("/v1/search", "256 KiB"),
            ("/v1/ask", "1 MiB"),
            ("/v1/evaluations", "8 MiB"),
            ("/v1/webhooks", "1 MiB"),
        ]:
            with subtests.test(path):
                refused = client.post(path, json={"x": "x" * 9_000_000})

                assert_problem(refused, 413, f"at most {limit}: shorten it")
                assert "RAGKV" not in refused.text


def test_plain_handlers_and_dependencies_run_in_the_fair_pool_for_their_tenant(client: Client, parts: Parts):
    def where() -> tuple[str, str]:
        return threading.current_thread().name, OWNER.get()

    @get(
        "/where",
        guards=[reading],
        dependencies={"looked_up": Provide(where, sync_to_thread=True)},
        sync_to_thread=True,
    )
    def handle(looked_up: NamedDependency[tuple[str, str]]) -> list[tuple[str, str]]:
        return [looked_up, where()]

    client.app.register(handle)
    threads, owners = zip(*client.get("/where").json(), strict=True)

    assert all(thread.startswith("work") for thread in threads)
    assert owners == 2 * (parts.default_collection.tenant_id,)


class TestAsking:
    def test_an_answer_comes_with_its_sources_and_numbers(self, client: Client, answerable: str, parts: Parts):
        answer = client.post("/v1/ask", json={"question": "Who wrote the first program?"}).json()

        assert answer["answer"] == "Ada Lovelace wrote it."
        assert answer["passages"][0]["document_id"] == answerable
        assert answer["usage"]["prompt"] == answer["usage"]["computed"] > 0
        assert [span["kind"] for span in answer["prompt_spans"]] == ["prefix", "passage", "question"]
        assert answer["prompt_spans"][-1]["end"] == answer["usage"]["prompt"]
        assert answer["timings"]["ttft_ms"] > 0
        with parts.database.reading() as session:
            kept = session.scalars(select(QuestionRow)).one()
            assert (kept.text, kept.prompt_tokens) == ("Who wrote the first program?", answer["usage"]["prompt"])

    @pytest.mark.parametrize("way", ["body", "header"])
    def test_a_stream_gives_the_same_answer_piece_by_piece(self, client: Client, answerable: str, way: str):
        body: dict[str, Any] = {"question": "Who?", "stream": True} if way == "body" else {"question": "Who?"}
        response = client.post("/v1/ask", json=body, headers={"accept": "text/event-stream"} if way == "header" else {})

        assert response.headers["content-type"].startswith("text/event-stream")
        names, values = zip(*events_of(response.text), strict=True)
        assert names == ("delta", "delta", "delta", "delta", "done")
        assert "".join(value["text"] for value in values[:-1]) == values[-1]["answer"] == "Ada Lovelace wrote it."

    def test_bad_questions_are_refused_with_the_reason(self, client: Client):
        def ask(**body: object) -> httpx.Response:
            return client.post("/v1/ask", json=body)

        assert_problem(ask(question="Who?", typo=1), 400, "typo")
        assert_problem(ask(), 400, "question")
        assert_problem(ask(question="Who?", mode="fast"), 400, "mode")
        assert_problem(ask(question=" "), 422, "empty")
        assert_problem(ask(question="🜁" * 9_000), 413, "window")
        assert_problem(ask(question="x" * 2_000_000), 413)
        assert_problem(client.post("/v1/ask", json={"question": "🜁" * 9_000, "stream": True}), 413, "window")

    def test_numbers_out_of_range_are_refused(self, client: Client, subtests: pytest.Subtests):
        for field in ["top_k", "hops", "max_tokens"]:
            for value in [0, -1, 10**9]:
                with subtests.test(field=field, value=value):
                    response = client.post("/v1/ask", json={"question": "Who?", field: value})

                    assert_problem(response, 400, field)

    def test_an_empty_collection_says_what_to_do(self, client: Client):
        answer = client.post("/v1/ask", json={"question": "Who?"})
        assert (answer.status_code, answer.json()["no_passages"]) == (200, True)
        assert "upload" in answer.json()["answer"]

    def test_a_search_of_an_empty_collection_finds_nothing_and_is_no_error(self, client: Client):
        found = client.post("/v1/search", json={"question": "Who?"})
        assert (found.status_code, found.json()["passages"]) == (200, [])

        described = client.get("/schema/openapi.json").json()["paths"]["/v1/search"]["post"]["responses"]["404"]
        assert described["description"] == "No such collection or document."

    def test_an_engine_that_is_away_is_503_and_worth_another_try(
        self, client: Client, answerable: str, engine: EchoEngine
    ):
        engine.started = False
        response = client.post("/v1/ask", json={"question": "Who?"})

        assert_problem(response, 503)
        assert int(response.headers["retry-after"]) > 0

    def test_without_the_questions_vectors_the_engine_selects(
        self, client: Client, answerable: str, engine: EchoEngine, monkeypatch: pytest.MonkeyPatch
    ):
        """An engine's report may be lost alone."""
        engine.stitches = True
        report_of = engine._report
        monkeypatch.setattr(
            engine, "_report", lambda request: msgspec.structs.replace(report_of(request), queries=None)
        )

        answered = client.post("/v1/ask", json={"question": "Who wrote it?", "policy": "initial"})

        assert answered.status_code == 200
        assert answered.json()["usage"]["stitched"] > 0

    def test_an_engine_that_fails_half_way_ends_the_stream_with_an_error(
        self, client: Client, answerable: str, engine: EchoEngine
    ):
        engine.fail_after = 2
        events = list(events_of(client.post("/v1/ask", json={"question": "Who?", "stream": True}).text))

        assert [name for name, _ in events] == ["delta", "delta", "error"]
        assert events[-1][1]["status"] == 503

    def test_a_stream_begins_without_a_token_and_is_kept_alive(
        self, client: Client, answerable: str, engine: EchoEngine, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("api.v1.ask.KEEP_ALIVE_EVERY_S", 0.05)
        engine.piece_s = 0.5
        asked = {"question": "Who?", "stream": True}
        whole = client.post("/v1/ask", json=asked).text
        engine.fail_after = 0
        failed = client.post("/v1/ask", json=asked)

        assert whole.startswith(": still here\n\n: still here\n\n")
        shown = [name for name, _ in events_of(whole)]
        assert shown == ["delta"] * len(engine.words) + ["done"]
        assert failed.status_code == 200
        (last,) = events_of(failed.text)
        assert (last[0], last[1]["status"]) == ("error", 503)

    def test_closing_a_stream_that_has_no_token_yet_stops_the_generation(
        self,
        parts: Parts,
        engine: EchoEngine,
        redis_server: EmbeddedRedis,
        ingest: IngestParts,
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr("api.v1.ask.KEEP_ALIVE_EVERY_S", 0.1)
        engine.piece_s = 30.0
        with serving(parts) as client:
            ingest_document(str(upload(client).json()["id"]), ingest)
            body = {"question": "Who wrote the first program?", "stream": True}
            with client.stream("POST", "/v1/ask", json=body) as response:
                received = response.iter_raw()
                assert next(received) == b": still here\n\n"
                wait_until(lambda: engine.running == 1)
            wait_until(lambda: engine.closed == 1 and engine.running == 0, seconds=20)

    @pytest.mark.parametrize("stream", [True, False])
    def test_closing_the_request_stops_the_generation(
        self, parts: Parts, engine: EchoEngine, redis_server: EmbeddedRedis, ingest: IngestParts, stream: bool
    ):
        """Over a real connection."""
        engine.piece_s = 5.0
        with serving(parts) as client:
            ingest_document(str(upload(client).json()["id"]), ingest)
            body = {"question": "Who wrote the first program?", "stream": stream}
            with pytest.raises(httpx.ReadTimeout), client.stream("POST", "/v1/ask", json=body, timeout=2) as response:
                response.read()
            wait_until(lambda: engine.closed == 1 and engine.running == 0)


class TestService:
    def test_healthz_answers_and_readyz_names_what_is_away(self, client: Client, engine: EchoEngine):
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").json() == {
            "ready": True,
            "engine": "ok",
            "database": "ok",
            "redis": "ok",
            "service": "ok",
            "index": "ok",
            "worker": "no worker runs: uploads wait until one does",
            "queue": "ok",
            "disk": "ok",
            "degraded": ["worker"],
        }
        engine.started = False

        response = client.get("/readyz")
        assert response.status_code == 503
        assert response.json()["engine"] != "ok"

    def test_readyz_sees_a_redis_that_stopped(self, client: Client, redis_server: EmbeddedRedis):
        redis_server.stop()

        response = client.get("/readyz")
        assert (response.status_code, response.json()["database"]) == (503, "ok")
        assert response.json()["redis"] != "ok"

    def test_the_schema_names_every_way_in(self, client: Client):
        paths = client.get("/schema/openapi.json").json()["paths"]

        assert {"/v1/documents", "/v1/documents/{document_id}", "/v1/ask", "/healthz", "/readyz"} <= set(paths)

    def test_ways_that_lead_nowhere_are_problems(self, client: Client):
        assert_problem(client.get("/nowhere"), 404, "/schema lists those of the API")
        assert_problem(client.put("/v1/ask"), 405, "`Allow` lists those that it has")
        assert_problem(client.get("/admin/nowhere"), 404)

    def test_a_browser_gets_a_page_where_the_dashboard_has_none(self, client: Client):
        for path in ("/admin/nowhere", "/admin/keys/nowhere", f"/admin/documents/{'0' * 32}"):
            response = client.get(path, headers={"accept": "text/html"})
            assert (response.status_code, response.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
            assert "Back to the overview" in response.text

    def test_a_path_says_to_anybody_which_methods_it_has(self, client: Client, parts: Parts, subtests: pytest.Subtests):
        issue_key_by_name("default", "x", ["read"], parts.database)
        for path, methods in {
            "/v1/collections/default": "DELETE, GET, HEAD, OPTIONS, PATCH",
            "/v1/files": "GET, HEAD, OPTIONS, POST",
            "/v1/keys": "GET, HEAD, OPTIONS, POST",
            "/admin": "GET, HEAD, OPTIONS",
            "/healthz": "GET, HEAD, OPTIONS",
        }.items():
            with subtests.test(path):
                response = client.options(path)
                assert (response.status_code, response.headers["allow"]) == (204, methods)

    def test_bodies_that_are_nested_too_deeply_are_refused(self, client: Client, subtests: pytest.Subtests):
        for nested in [b"[" * 100_000, b'{"metadata":' * 5_000, b"[" * 5_000 + b"]" * 5_000]:
            with subtests.test(nested=nested[:20]):
                posts = ["/v1/ask", "/v1/search", "/v1/collections", "/v1/keys"]
                patches = [
                    "/v1/collections/default",
                    "/v1/collections/default/kv",
                    "/v1/documents/x",
                    "/v1/documents/x/kv",
                ]
                ways = [*(("POST", path) for path in posts), *(("PATCH", path) for path in patches)]
                for method, path in ways:
                    response = client.request(
                        method, path, content=nested, headers={"content-type": "application/json"}
                    )
                    assert_problem(response, 400, "nested too deeply")

    def test_a_port_in_use_is_refused(self):
        with closing(listen("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(Rejected, match=f"127.0.0.1:{port}.*choose another"):
                listen("127.0.0.1", port)
