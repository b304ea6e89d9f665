"""Every path of an engine that is a server of its own asks for the key, but /health."""

import asyncio

import pytest
from click.testing import CliRunner

from ragkv.cli.engine import engine, ray_config
from ragkv.connector.guard import RequireKey
from ragkv.engine.launch import server_variables
from ragkv.settings import Settings

KEY = "a-long-random-key"


@pytest.fixture
def guarded(monkeypatch):
    """(method, path, headers, type) -> the status of the answer; 200 comes from the application behind the guard."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    guard = RequireKey(app)

    def ask(path, *keys, method="GET", kind="http"):
        headers = [(b"authorization", key.encode()) for key in keys]
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": kind, "method": method, "path": path, "headers": headers}
        asyncio.run(guard(scope, None, send))
        return sent[0].get("status", sent[0]["type"])

    return ask


def test_no_path_answers_without_the_key(guarded, subtests):
    for method in ["GET", "POST", "OPTIONS"]:
        for path in [
            "/v1/completions",
            "/invocations",
            "/tokenize",
            "/metrics",
            "/docs",
            "/",
            "//health",
            "/health/",
            "/HEALTH",
        ]:
            with subtests.test(method=method, path=path):
                assert guarded(path, method=method) == 401
                assert guarded(path, f"Bearer {KEY}", method=method) == 200


def test_another_key_is_no_key(guarded, subtests):
    for header in [KEY, f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer ", "Bearer \xe9"]:
        with subtests.test(header=header):
            assert guarded("/invocations", header) == 401


def test_two_keys_are_none(guarded):
    assert guarded("/invocations", f"Bearer {KEY}", f"Bearer {KEY}") == 401


def test_health_is_open(guarded):
    assert guarded("/health") == 200


def test_a_websocket_without_the_key_is_closed(guarded):
    assert guarded("/v1/realtime", kind="websocket") == "websocket.close"
    assert guarded("/v1/realtime", f"Bearer {KEY}", kind="websocket") == 200


def test_a_guard_without_a_key_does_not_start(monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with pytest.raises(AssertionError, match="ragkv engine"):
        RequireKey(None)


@pytest.mark.parametrize("command", [engine, ray_config], ids=lambda command: command.name)
def test_an_address_that_others_reach_needs_a_key(command, monkeypatch):
    monkeypatch.setenv("RAGKV_ENGINE_API_KEY", "")
    refused = CliRunner().invoke(command, ["--host", "0.0.0.0"])
    assert "RAGKV_ENGINE_API_KEY" in str(refused.exception)


def test_the_key_goes_to_vllm_in_its_environment():
    assert server_variables(Settings(engine_api_key=KEY)) == {"VLLM_API_KEY": KEY}
    assert server_variables(Settings()) == {}
