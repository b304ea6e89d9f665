"""Addresses that OpenAI's clients call and the service does not have: each error says what to do."""

import openai
import pytest
from openai import OpenAI

from api.openai.errors import NOT_OFFERED
from tests.support.over_http import Client, assert_problem

PATHS_OF_CLIENTS = (
    "/chat/completions", "/completions", "/models", "/models/gpt-4o", "/responses", "/files", "/vector_stores/x/search",
    "/assistants", "/batches", "/images/generations", "/audio/speech", "/moderations", "/fine_tuning/jobs", "/uploads",
    "/conversations", "/threads/thread_1/runs",
)  # fmt: skip


def test_a_path_without_v1_says_where_the_api_is(client: Client, subtests: pytest.Subtests):
    for path in PATHS_OF_CLIENTS:
        with subtests.test(path):
            refused = client.post(path, json={})

            assert refused.status_code == 404
            assert refused.json()["error"] == {
                "message": "OpenAI's API is under /v1 here: let the client's base_url end with /v1",
                "type": "invalid_request_error", "param": None, "code": "unknown_url",
            }  # fmt: skip


def test_what_is_not_offered_is_called_so(client: Client, subtests: pytest.Subtests):
    for path in [*NOT_OFFERED, "/v1/threads/thread_1/messages", "/v1/images/generations", "/v1/fine_tuning/jobs"]:
        with subtests.test(path):
            refused = client.post(path, json={})

            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (404, "unknown_url")
            assert "not " in error["message"] and error["message"] in NOT_OFFERED.values()
    refused = client.get("/v1/chat/completions/chatcmpl-1")
    assert (refused.status_code, "/schema" in refused.json()["error"]["message"]) == (404, True)


def test_the_client_shows_it(client: Client):
    called = OpenAI(base_url="http://127.0.0.1", api_key="x", http_client=client, max_retries=0)
    with pytest.raises(openai.NotFoundError, match="base_url end with /v1"):
        called.models.list()
    called = OpenAI(base_url="http://127.0.0.1/v1", api_key="x", http_client=client, max_retries=0)
    for call in (
        called.conversations.create,
        lambda: called.images.generate(prompt="x"),
        lambda: called.completions.create(model="m", prompt="x"),
    ):
        with pytest.raises(openai.NotFoundError, match=r"not (offered|stored)"):
            call()


def test_other_addresses_are_problems_as_before_and_in_no_description(client: Client):
    assert_problem(client.get("/v1/nothing"), 404)
    assert_problem(client.get("/nothing"), 404)
    described = client.get("/schema/openapi.json").json()["paths"]
    assert not [path for path in described if path in NOT_OFFERED or path in PATHS_OF_CLIENTS]
