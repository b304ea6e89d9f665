"""What OpenAI's clients may send and this service does not do: a clear 400 that names the field. And what is
hostile."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.openai.file_batches import MAX_FILES
from ingest.parts import IngestParts
from tests.support.over_http import upload
from tests.support.over_openai import OpenAIService, openai_service

ASKED = "Who wrote the first program?"
NESTED = b"[" * 100_000

CHAT: list[tuple[str, Any]] = [
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("frequency_penalty", 0.5),
    ("function_call", "auto"),
    ("functions", [{"name": "f"}]),
    ("logit_bias", {"50256": -100}),
    ("logprobs", True),
    ("modalities", ["text", "audio"]),
    ("moderation", {"model": "m"}),
    ("n", 2),
    ("prediction", {"type": "content", "content": "x"}),
    ("presence_penalty", -1),
    ("prompt_cache_options", {}),
    ("prompt_cache_retention", "24h"),
    ("reasoning_effort", "high"),
    ("response_format", {"type": "json_object"}),
    ("service_tier", "flex"),
    ("stop", ["\n"]),
    ("store", True),
    ("stream_options", {"include_usage": True}),
    ("temperature", 0.7),
    ("tool_choice", "auto"),
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("top_logprobs", 3),
    ("verbosity", "low"),
    ("web_search_options", {}),
    ("max_tokens", 0),
    ("max_completion_tokens", -1),
    ("top_p", 2),
    ("vector_store_ids", []),
    ("vector_store_ids", ["a", "b"]),
    ("messages", []),
    ("messages", "Who?"),
    ("messages", [{"role": "user", "content": " "}]),
    ("messages", [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada"}]),
    ("model", 3),
    ("made_up", 1),
]
RESPONSES: list[tuple[str, Any]] = [
    ("access_programs", {"cyber": "standard"}),
    ("background", True),
    ("background_options", {}),
    ("context_management", []),
    ("conversation", "conv_1"),
    ("image", {}),
    ("include", ["reasoning.encrypted_content"]),
    ("input", []),
    ("input", [{"role": "assistant", "content": "Ada"}]),
    ("max_output_tokens", 0),
    ("max_tool_calls", 2),
    ("moderation", {"model": "m"}),
    ("previous_response_id", "resp_1"),
    ("prompt", {"id": "p"}),
    ("prompt_cache_options", {}),
    ("prompt_cache_retention", "24h"),
    ("reasoning", {"effort": "high"}),
    ("service_tier", "priority"),
    ("store", True),
    ("stream_options", {"include_obfuscation": False}),
    ("temperature", 1.0),
    ("text", {"format": {"type": "json_schema"}}),
    ("tool_choice", "none"),
    ("tools", [{"type": "web_search"}]),
    ("tools", [{"type": "function", "name": "f"}]),
    ("top_logprobs", 1),
    ("truncation", "auto"),
    ("made_up", 1),
]
NO_EFFECT: dict[str, Any] = {
    "top_p": 0.3,
    "user": "u",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "metadata": {"a": "b"},
    "parallel_tool_calls": False,
    "service_tier": "auto",
    "store": False,
    "temperature": 0,
}
STORES: list[tuple[str, Any]] = [
    ("chunking_strategy", {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}),
    ("description", "x"),
    ("expires_after", {"anchor": "last_active_at", "days": 1}),
    ("file_ids", "f"),
    ("metadata", {"a": "b"}),
    ("name", "\x00"),
    ("name", "0" * 32),
]
SEARCHES: list[tuple[str, Any]] = [
    ("filters", {"type": "eq", "key": "a"}),
    ("filters", {"type": "in", "key": "a", "value": "b"}),
    ("filters", {"type": "and", "filters": []}),
    ("filters", {"type": "like", "key": "a", "value": "b"}),
    ("max_num_results", 51),
    ("query", " "),
    ("query", []),
    ("ranking_options", {"score_threshold": 0.5}),
    ("ranking_options", {"ranker": "none"}),
    ("rewrite_query", True),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, loaded: IngestParts) -> Iterator[OpenAIService]:
    with openai_service(tmp_path_factory.mktemp("fields"), loaded) as service:
        service.http.headers["Authorization"] = f"Bearer {service.key}"
        upload(service.http)
        service.read_all()
        yield service


@pytest.fixture(scope="module")
def store(service: OpenAIService) -> str:
    return str(service.http.post("/v1/vector_stores", json={"name": "store"}).json()["id"])


def assert_refused(response: httpx.Response, param: str) -> None:
    """OpenAI's form, and the field by name."""
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param)
    assert error["message"]


def chat(service: OpenAIService, **fields: Any) -> httpx.Response:
    body = {"model": service.model, "messages": [{"role": "user", "content": ASKED}]} | fields
    return service.http.post("/v1/chat/completions", json=body)


def respond(service: OpenAIService, **fields: Any) -> httpx.Response:
    return service.http.post("/v1/responses", json={"model": service.model, "input": ASKED} | fields)


def test_chat_refuses_what_it_does_not_do(service: OpenAIService, subtests: pytest.Subtests):
    for field, value in CHAT:
        with subtests.test(field=field, value=value):
            assert_refused(chat(service, **{field: value}), field)


def test_responses_refuse_what_they_do_not_do(service: OpenAIService, subtests: pytest.Subtests):
    for field, value in RESPONSES:
        with subtests.test(field=field, value=value):
            assert_refused(respond(service, **{field: value}), field)


def test_a_vector_store_refuses_what_it_cannot_have(service: OpenAIService, subtests: pytest.Subtests):
    for field, value in STORES:
        with subtests.test(field=field, value=value):
            response = service.http.post("/v1/vector_stores", json={field: value})
            assert_refused(response, "" if value in ("\x00", "0" * 32) else field)


def test_a_search_refuses_what_it_does_not_do(service: OpenAIService, store: str, subtests: pytest.Subtests):
    for field, value in SEARCHES:
        with subtests.test(field=field, value=value):
            response = service.http.post(f"/v1/vector_stores/{store}/search", json={"query": ASKED} | {field: value})
            assert_refused(response, field)


def test_parts_of_messages_are_named_by_their_place(service: OpenAIService):
    picture = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]
    assert_refused(chat(service, messages=[{"role": "user", "content": picture}]), "messages[0].content")
    assert_refused(chat(service, messages=[{"role": "tool", "content": "x"}]), "messages[0].role")
    assert_refused(chat(service, messages=[{"role": "assistant", "tool_calls": []}]), "messages[0].tool_calls")
    assert_refused(respond(service, input=[{"content": "x"}]), "input[0].role")
    assert_refused(respond(service, input=[{"type": "function_call"}]), "input[0].type")


def test_a_refusal_says_what_is_accepted(service: OpenAIService, subtests: pytest.Subtests):
    for fields, accepted in [
        ({"temperature": 0.7}, "Only 0 is supported"),
        ({"temperature": "hot"}, "Only 0 is supported"),
        ({"n": 2}, ": use 1"),
        ({"service_tier": "flex"}, ": use 'auto' or 'default'"),
        ({"response_format": {"type": "json_schema"}}, ": use 'text'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, ": use 'assistant', 'developer', 'system' or 'user'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, ": use 'text'"),
        ({"modalities": ["audio"]}, ": use 'text'"),
    ]:
        with subtests.test(fields=fields):
            assert accepted in chat(service, **fields).json()["error"]["message"]


def test_a_refusal_of_a_parameter_or_a_form_says_what_is_accepted(service: OpenAIService, store: str):
    found = service.http.get(f"/v1/vector_stores/{store}/files", params={"filter": "done"})
    assert "use 'cancelled', 'completed', 'failed' or 'in_progress'" in found.json()["error"]["message"]
    kept = service.http.post("/v1/files", files={"file": ("a.md", b"x")}, data={"purpose": "fine-tune"})
    assert "use 'assistants' or 'user_data'" in kept.json()["error"]["message"]
    text = service.http.post("/v1/files", files={"file": (None, b"x"), "purpose": (None, "assistants")})
    assert text.json()["error"]["message"] == "'file': expected one file, sent with a file name"
    assert "empty: send JSON" in service.http.post("/v1/chat/completions").json()["error"]["message"]


def test_a_threshold_of_scores_is_refused_for_what_it_is(service: OpenAIService, store: str):
    ranking = {"ranking_options": {"score_threshold": 0.5}}
    tools = [{"type": "file_search", "vector_store_ids": [store]} | ranking]
    searched = service.http.post(f"/v1/vector_stores/{store}/search", json={"query": ASKED} | ranking)
    for response in (searched, respond(service, tools=tools)):
        message = response.json()["error"]["message"]
        assert "Only 0 is supported: passages are not filtered by score" in message
        assert "greedy" not in message


def test_a_model_with_a_missing_collection_is_no_model(service: OpenAIService):
    for response in (
        chat(service, model=f"{service.model}@nowhere"),
        respond(service, model=f"{service.model}@nowhere"),
    ):
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")


def test_what_has_no_effect_is_accepted_and_changes_neither_request_nor_answer(service: OpenAIService):
    plain, request = chat(service).json(), service.engine.latest
    others = {"seed": 7, "n": 1, "frequency_penalty": 0, "response_format": {"type": "text"}, "logprobs": False}
    nulls = {"tools": None, "stop": None, "stream_options": None}
    answer = chat(service, **NO_EFFECT, **others, **nulls)
    assert (answer.status_code, service.engine.latest) == (200, request)
    assert (answer.json()["choices"], answer.json()["usage"]) == (plain["choices"], plain["usage"])

    plain, request = respond(service).json(), service.engine.latest
    likewise = {"text": {"format": {"type": "text"}}, "truncation": "disabled", "background": False, "reasoning": None}
    answer = respond(service, **NO_EFFECT, **likewise, tool_choice="auto")
    assert (answer.status_code, service.engine.latest) == (200, request)
    assert [item.get("content") for item in answer.json()["output"]] == [
        item.get("content") for item in plain["output"]
    ]


def test_a_batch_may_have_all_the_files_and_attributes_that_its_schema_allows(service: OpenAIService, store: str):
    attributes = {f"{number:064}": "x" * 512 for number in range(16)}
    files = [{"file_id": f"{number:032}", "attributes": attributes} for number in range(MAX_FILES)]
    answer = service.http.post(f"/v1/vector_stores/{store}/file_batches", json={"files": files})

    assert answer.status_code == 404, answer.text
    assert "file" in answer.json()["error"]["message"]


def test_two_limits_that_differ_are_refused(service: OpenAIService):
    assert_refused(chat(service, max_tokens=2, max_completion_tokens=3), "max_tokens")
    assert chat(service, max_tokens=2, max_completion_tokens=2).status_code == 200


def test_a_question_beyond_the_window_or_the_body_is_too_large(service: OpenAIService):
    for response in (chat(service, messages=[{"role": "user", "content": "Who? " * n}]) for n in (20_000, 400_000)):
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_batches_and_files_are_checked(service: OpenAIService, store: str):
    def post(way: str, body: Any) -> httpx.Response:
        return service.http.post(f"/v1/vector_stores/{store}/{way}", json=body)

    assert_refused(post("file_batches", {}), "file_ids")
    assert_refused(post("file_batches", {"file_ids": ["a"], "files": [{"file_id": "a"}]}), "file_ids")
    assert_refused(post("file_batches", {"files": [{"file_id": "a"}], "attributes": {"a": 1}}), "attributes")
    assert_refused(post("files", {"file_id": "a", "attributes": {"a": None}}), "attributes")
    assert_refused(post("files", {"file_id": "a", "attributes": {"a" * 65: 1}}), "")
    assert_refused(post("files", {"file_id": "a", "attributes": {str(i): i for i in range(17)}}), "attributes")
    assert post("files", {"file_id": "a"}).status_code == 404
    assert_refused(service.http.get("/v1/vector_stores", params={"limit": 101}), "limit")
    assert_refused(service.http.get("/v1/vector_stores", params={"order": "up"}), "order")
    assert_refused(service.http.get("/v1/vector_stores", params={"after": store, "before": store}), "before")


def test_a_nested_filter_has_its_limits(service: OpenAIService, store: str):
    filters: dict[str, Any] = {"type": "eq", "key": "a", "value": 1}
    for _ in range(10):
        filters = {"type": "and", "filters": [filters]}
    assert_refused(
        service.http.post(f"/v1/vector_stores/{store}/search", json={"query": "x", "filters": filters}), "filters"
    )
    wide = {"type": "or", "filters": [{"type": "or", "filters": [{"type": "eq", "key": "a", "value": 1}] * 20}] * 20}
    assert_refused(
        service.http.post(f"/v1/vector_stores/{store}/search", json={"query": "x", "filters": wide}), "filters"
    )


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"3",
    b'"x"',
    b"{",
    b"\xff\xfe",
    b'{"a":"\\ud800"}',
    NESTED,
    b'{"model":' + b"9" * 5000 + b"}",
]


def test_hostile_bodies_are_refused_in_the_same_form(service: OpenAIService, store: str, subtests: pytest.Subtests):
    for body in HOSTILE:
        with subtests.test(body=body[:20]):
            ways = (
                "chat/completions",
                "responses",
                "vector_stores",
                f"vector_stores/{store}/files",
                f"vector_stores/{store}/search",
            )
            for way in (*ways, f"vector_stores/{store}", f"vector_stores/{store}/file_batches", "files"):
                response = service.http.post(f"/v1/{way}", content=body, headers={"content-type": "application/json"})
                assert response.status_code in {400, 413}, (way, response.text)
                assert response.json()["error"]["message"], way


def test_strange_text_is_text(service: OpenAIService, store: str, subtests: pytest.Subtests):
    """Whatever it stands for, no way fails."""
    for text in ["\x00", "a\x00b", "\u202e", "💥" * 500, "' OR 1=1 --", "../../etc/passwd"]:
        with subtests.test(text=text[:20]):
            http, attributes = service.http, {"k": text}
            made = http.post(
                "/v1/files", files={"file": (text.replace("\x00", ""), b"x")}, data={"purpose": "assistants"}
            ).json()
            answers = [
                chat(service, messages=[{"role": "user", "content": f"Who? {text}"}]),
                chat(service, model=f"{service.model}@{text}"),
                chat(service, vector_store_ids=[text[:200]]),
                respond(service, input=f"Who? {text}", instructions=text, user=text[:100]),
                http.post(f"/v1/vector_stores/{store}/search", json={"query": f"x{text}"}),
                http.post(
                    f"/v1/vector_stores/{store}/search",
                    json={"query": "x", "filters": {"type": "eq", "key": "k", "value": text[:500]}},
                ),
                http.post(
                    f"/v1/vector_stores/{store}/search",
                    json={"query": "x", "filters": {"type": "ne", "key": f"k{text[:50]}", "value": 1}},
                ),
                http.post("/v1/vector_stores", json={"name": text[:200]}),
                http.post(
                    f"/v1/vector_stores/{store}/files", json={"file_id": made.get("id", "x"), "attributes": attributes}
                ),
                http.get("/v1/files", params={"after": text}),
                http.get(f"/v1/models/{text.encode().hex()}"),
                http.post("/v1/files", files={"file": (text, b"x")}, data={"purpose": text}),
            ]
            assert all(response.status_code in {200, 400, 404, 413} for response in answers), [r.text for r in answers]
