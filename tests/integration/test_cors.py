"""Pages of other sites: those whose origins are listed may call the API with a key, none may use the dashboard."""

import httpx
import msgspec
import pytest

from ragkv.service.keys.keys import issue_key
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.integration.test_mcp import message
from tests.integration.test_sessions import csrf_token, log_in
from tests.support.over_http import Client, assert_problem

LISTED, FOREIGN = "https://chat.example.com", "https://elsewhere.example"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
MCP = {"accept": "application/json, text/event-stream"}
ALLOWED = "access-control-allow-origin"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, cors_origins=f"{LISTED}, http://localhost:3000")


@pytest.fixture
def key(parts: Parts) -> str:
    return issue_key(parts.default_collection.tenant_id, "browser", ["admin"], parts.database).key


def shared(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


def test_a_listed_origin_may_send_what_clients_send(client: Client, key: str, subtests: pytest.Subtests):
    for path in ("/v1/chat/completions", "/v1/documents", "/mcp"):
        with subtests.test(path):
            preflight = client.options(path, headers=PREFLIGHT | {"origin": LISTED})

            assert preflight.status_code == 204
            assert preflight.headers[ALLOWED] == LISTED
            assert preflight.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
            assert "POST" in preflight.headers["access-control-allow-methods"]
            assert "access-control-allow-credentials" not in preflight.headers


def test_a_listed_origin_reads_answers_errors_and_headers(client: Client, key: str, subtests: pytest.Subtests):
    for path, sent, status in [
        ("/v1/models", {"authorization": f"Bearer {key}"}, 200),
        ("/v1/models", {}, 401),
        ("/v1/nothing", {}, 404),
        ("/v1/collections", {}, 401),
    ]:
        with subtests.test(path=path, status=status):
            response = client.get(path, headers=sent | {"origin": LISTED})

            assert response.status_code == status
            assert shared(response) == {ALLOWED: LISTED, "access-control-expose-headers": "*"}
            assert "Origin" in response.headers["vary"]
    assert client.get("/v1/models").headers["vary"] == "Origin", "a cache must not give it to another site"


def test_others_read_nothing(client: Client, key: str, subtests: pytest.Subtests):
    for origin in (FOREIGN, "null", f"{LISTED}.elsewhere.example", LISTED.upper(), "http://localhost"):
        with subtests.test(origin):
            for response in (
                client.options("/v1/models", headers=PREFLIGHT | {"origin": origin}),
                client.get("/v1/models", headers={"authorization": f"Bearer {key}", "origin": origin}),
            ):
                assert shared(response) == {}


def test_tools_are_called_from_listed_pages_alone(client: Client, key: str):
    headers = MCP | {"authorization": f"Bearer {key}", "sec-fetch-site": "cross-site"}
    answers = [client.post("/mcp", json=message(), headers=headers | {"origin": one}) for one in (LISTED, FOREIGN)]

    assert answers[0].status_code == 200
    assert answers[0].headers[ALLOWED] == LISTED
    assert_problem(answers[1], 403, "RAGKV_CORS_ORIGINS")


def test_the_dashboard_and_its_session_stay_out_of_reach(client: Client, key: str):
    """Sites of one domain send each other's cookies."""
    assert log_in(client, key).status_code == 303
    headers = {"origin": LISTED, "sec-fetch-site": "same-site", "x-csrf-token": csrf_token(client)}

    assert shared(client.get("/admin/keys", headers=headers)) == {}
    assert shared(client.options("/admin/login", headers=PREFLIGHT | headers)) == {}
    assert_problem(client.post("/admin/logout", headers=headers), 403)
    assert_problem(client.post("/v1/collections", json={"name": "a"}, headers=headers), 403)
    assert_problem(client.post("/mcp", json=message(), headers=MCP | headers), 403)


def test_until_there_is_a_key_only_this_machines_pages_may_call(client: Client):
    assert_problem(client.get("/v1/collections", headers={"origin": LISTED}), 403, "keys create")
    assert client.get("/v1/collections", headers={"origin": "http://localhost:3000"}).status_code == 200


class TestEveryOrigin:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, cors_origins="*")

    def test_any_page_may_call_with_a_key(self, client: Client, key: str):
        headers = {"authorization": f"Bearer {key}", "origin": FOREIGN}

        assert client.get("/v1/models", headers=headers).headers[ALLOWED] == FOREIGN
        assert client.post("/mcp", json=message(), headers=MCP | headers).status_code == 200
        assert shared(client.get("/admin/login", headers=headers)) == {}
        assert_problem(client.get("/v1/collections", headers={"origin": FOREIGN}), 401)
