"""What OpenAI's clients may send and this service does not do: a clear 400 that names the field. And what is
hostile."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from msgspec import inspect

from api.app import create_app
from api.openai.errors import PATHS
from api.openai.file_batches import MAX_FILES
from api.openai.files import FileForm
from ingest.parts import IngestParts
from ragkv.engine.protocol import Sampling
from tests.support.over_http import upload
from tests.support.over_openai import OpenAIService, openai_service

ASKED = "Who wrote the first program?"
NESTED = b"[" * 100_000

CHAT: list[tuple[str, Any]] = [
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("frequency_penalty", 2.5),
    ("presence_penalty", "much"),
    ("prompt_cache_options", {"a": 1}),
    ("response_format", {"type": "json_schema"}),
    ("response_format", {"type": "grammar"}),
    ("stop", [""]),
    ("temperature", 2.1),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("tools", [{"type": "web_search"}]),
    ("web_search_options", {"search_context_size": "low"}),
    ("function_call", "auto"),
    ("functions", [{"name": "f"}]),
    ("logit_bias", {"50256": -100}),
    ("logprobs", True),
    ("modalities", ["text", "audio"]),
    ("moderation", {"model": "m"}),
    ("n", 2),
    ("prediction", {"type": "content", "content": "x"}),
    ("prompt_cache_retention", "24h"),
    ("reasoning_effort", "high"),
    ("service_tier", "flex"),
    ("store", True),
    ("stream_options", {"include_usage": True}),
    ("top_logprobs", 3),
    ("verbosity", "low"),
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
    ("background_options", {"a": 1}),
    ("context_management", [{"type": "compaction"}]),
    ("image", {"a": 1}),
    ("temperature", -1),
    ("conversation", "conv_1"),
    ("include", ["message.output_text.logprobs"]),
    ("input", []),
    ("input", [{"role": "assistant", "content": "Ada"}]),
    ("max_output_tokens", 0),
    ("max_tool_calls", 2),
    ("moderation", {"model": "m"}),
    ("previous_response_id", "resp_1"),
    ("prompt", {"id": "p"}),
    ("prompt_cache_retention", "24h"),
    ("reasoning", {"effort": "high"}),
    ("service_tier", "priority"),
    ("store", True),
    ("stream_options", {"include_obfuscation": False}),
    ("text", {"format": {"type": "json_schema"}}),
    ("tools", [{"type": "web_search"}]),
    ("top_logprobs", 1),
    ("truncation", "auto"),
    ("made_up", 1),
]
NO_EFFECT: dict[str, Any] = {
    "top_p": 1,
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
    ("ranking_options", {"score_threshold": 1.5}),
    ("ranking_options", {"hybrid_search": {"embedding_weight": 1, "text_weight": 1}}),
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
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert_refused(chat(service, messages=[{"role": "assistant", "tool_calls": calls}]), "messages[0].tool_calls")
    assert_refused(respond(service, input=[{"content": "x"}]), "input[0].role")
    assert_refused(respond(service, input=[{"type": "function_call"}]), "input[0].type")


def test_a_refusal_says_what_is_accepted(service: OpenAIService, subtests: pytest.Subtests):
    for fields, accepted in [
        ({"temperature": "hot"}, "Omitted or 0: the likeliest token"),
        ({"tool_choice": "required"}, "no function is called here"),
        ({"n": 2}, ": use 1"),
        ({"service_tier": "flex"}, ": use 'auto' or 'default'"),
        ({"response_format": {"type": "grammar"}}, ": use 'text', 'json_object' or 'json_schema'"),
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


def test_functions_are_offered_beside_one_file_search(service: OpenAIService, store: str):
    functions = [{"type": "function", "name": name, "parameters": {}} for name in "abc"]
    search = {"type": "file_search", "vector_store_ids": [store]}
    answer = respond(service, tools=[*functions, search])
    assert (answer.status_code, answer.json()["ragkv"]["vector_store_id"]) == (200, store)
    refused = respond(service, tools=[search, *functions, search])
    assert_refused(refused, "tools")
    assert "at most one file_search" in refused.json()["error"]["message"]


def test_a_model_with_a_missing_collection_is_no_model(service: OpenAIService):
    for response in (
        chat(service, model=f"{service.model}@nowhere"),
        respond(service, model=f"{service.model}@nowhere"),
    ):
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")


def test_what_has_no_effect_is_accepted_and_changes_neither_request_nor_answer(service: OpenAIService):
    plain, request = chat(service).json(), service.engine.latest
    others = {"n": 1, "frequency_penalty": 0, "response_format": {"type": "text"}, "logprobs": False}
    nulls = {"tools": None, "stop": None, "stream_options": None}
    empty = {"functions": [], "logit_bias": {}, "web_search_options": {}}
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"}
    answer = chat(service, **NO_EFFECT, **others, **(nulls | empty | tools))
    assert (answer.status_code, service.engine.latest) == (200, request)
    assert (answer.json()["choices"], answer.json()["usage"]) == (plain["choices"], plain["usage"])

    plain, request = respond(service).json(), service.engine.latest
    likewise = {"text": {"format": {"type": "text"}}, "truncation": "disabled", "background": False, "reasoning": None}
    likewise |= {"tools": [{"type": "function", "name": "f", "parameters": {}}], "image": {}}
    answer = respond(service, **NO_EFFECT, **likewise, tool_choice="auto")
    assert (answer.status_code, service.engine.latest) == (200, request)
    assert [item.get("content") for item in answer.json()["output"]] == [
        item.get("content") for item in plain["output"]
    ]


def test_null_is_the_same_as_omitting_a_field(service: OpenAIService, subtests: pytest.Subtests):
    """In every body of OpenAI's clients, and every structure within."""
    kinds = {kind.cls: kind for body in bodies_of(service) for kind in structures(inspect.type_info(body))}
    assert len(kinds) > 20
    for kind in kinds.values():
        for field in kind.fields:
            if not field.required:
                with subtests.test(kind=kind.cls.__name__, field=field.name):
                    assert field.default is None
                    assert any(isinstance(one, inspect.NoneType) for one in alternatives(field.type))


def test_what_is_empty_is_the_same_as_omitted(service: OpenAIService, store: str, subtests: pytest.Subtests):
    """Lists, and objects without a required field. Others are refused by name, and a question must not go to `default`
    because its list of stores is empty."""
    search, files = (f"/v1/vector_stores/{store}/{way}" for way in ("search", "file_batches"))
    chat(service)
    plain = service.engine.latest
    messages = [{"role": "user", "content": ASKED}]
    for path, body in {
        "/v1/chat/completions": {"model": service.model, "messages": messages},
        "/v1/responses": {"model": service.model, "input": ASKED},
        search: {"query": ASKED},
        files: {"file_ids": ["0" * 32]},
        "/v1/vector_stores": {"name": "default"},
    }.items():
        (annotation,) = (body for body, of_path in bodies_of(service).items() if of_path == path.replace(store, STORE))
        fields = {field.name: field for field in inspect.type_info(annotation).fields if not field.required}
        status = service.http.post(path, json=body).status_code
        for name, empty in [(name, empty) for name, field in fields.items() for empty in empties(field.type)]:
            if name not in {*body, "vector_store_ids"}:
                with subtests.test(path=path, field=name, empty=empty):
                    assert service.http.post(path, json=body | {name: empty}).status_code == status
                    assert service.engine.latest == plain
    assert_refused(chat(service, vector_store_ids=[]), "vector_store_ids")


STORE = "{vector_store_id:str}"


def bodies_of(service: OpenAIService) -> dict[Any, str]:
    """The types of the JSON bodies of OpenAI's paths, each with the path."""
    return {
        handler.parsed_fn_signature.parameters["data"].annotation: route.path
        for route in create_app(service.parts).routes
        for handler in getattr(route, "route_handlers", ())
        if route.path.startswith(PATHS) and "data" in handler.parsed_fn_signature.parameters
        if handler.parsed_fn_signature.parameters["data"].annotation is not FileForm
    }


def alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from alternatives(one)
    elif isinstance(kind, inspect.Metadata):
        yield from alternatives(kind.type)
    else:
        yield kind


def structures(kind: inspect.Type, above: tuple[type, ...] = ()) -> Iterator[inspect.StructType]:
    """The structures of a type, and those of their fields; each once on the way down."""
    for one in alternatives(kind):
        if isinstance(one, inspect.ListType):
            yield from structures(one.item_type, above)
        elif isinstance(one, inspect.StructType) and one.cls not in above:
            yield one
            for field in one.fields:
                yield from structures(field.type, (*above, one.cls))


def empties(kind: inspect.Type) -> Iterator[Any]:
    """The empty values that a field of this type may be sent."""
    found = list(alternatives(kind))
    if any(isinstance(one, inspect.ListType) for one in found):
        yield []
    objects = [one for one in found if isinstance(one, inspect.StructType)]
    if any(isinstance(one, inspect.DictType) for one in found) or any(
        one.tag is None and not any(field.required for field in one.fields) for one in objects
    ):
        yield {}


def test_sampling_reaches_the_engine(service: OpenAIService):
    chat(service)
    assert service.engine.latest.sampling == Sampling()
    fields = {"temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": -1, "seed": 7}
    assert chat(service, **fields, stop="END").status_code == 200
    assert service.engine.latest.sampling == Sampling(0.7, 0.9, 0.5, -1.0, 7, ("END",))
    assert chat(service, stop=["END", "\n"]).status_code == 200
    assert service.engine.latest.sampling == Sampling(stop=("END", "\n"))
    assert respond(service, temperature=1, top_p=0.5).json()["temperature"] == 1
    assert service.engine.latest.sampling == Sampling(temperature=1.0, top_p=0.5)


def test_a_schema_reaches_the_engine_unless_it_is_too_large(service: OpenAIService, subtests: pytest.Subtests):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}}
    named = {"name": "person", "schema": schema, "strict": True}
    assert chat(service, response_format={"type": "json_schema", "json_schema": named}).status_code == 200
    assert json.loads(service.engine.latest.sampling.schema or "") == schema
    text = {"format": {"type": "json_schema", **named}}
    assert respond(service, text=text).json()["text"]["format"]["schema"] == schema
    assert json.loads(service.engine.latest.sampling.schema or "") == schema
    assert chat(service, response_format={"type": "json_object"}).status_code == 200
    assert service.engine.latest.sampling.schema == '{"type":"object"}'
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"items": deep}
    for hostile in (
        deep,
        {"enum": ["x" * 40_000]},
        {"type": "string", "minLength": 1_000_000},
        {"type": "string", "maxLength": 1e300},
        {"type": "string", "pattern": "(a+)+" * 200},
        {"type": "string", "pattern": "a{1, 1000000}"},
        {"type": "string", "pattern": "^[ab]{129}$"},
        {"anyOf": [{"type": "string", "pattern": "(.b{100})" * 8} for _ in range(4)]},
        {"patternProperties": {"^a{3000,}$": {"type": "integer"}}},
        {"propertyNames": {"pattern": "^a{3000}$"}},
        {"properties": {f"p{number}": {} for number in range(501)}},
        {"properties": {f"p{number}": {} for number in range(101)}, "minProperties": 50},
        {"$defs": {"deep": {"allOf": [{"items": {"maxItems": -1}}]}}},
        {"properties": 7, "patternProperties": [7], "pattern": 7, "$defs": {"a": 7}, "items": {"minItems": "7"}},
    ):
        with subtests.test(schema=str(hostile)[:60]):
            refused = chat(
                service, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": hostile}}
            )
            assert_refused(refused, "response_format")


def test_names_and_values_in_a_schema_are_no_keywords_of_it(service: OpenAIService):
    schema = {
        "type": "object",
        "properties": {
            "maxLineItems": {"type": "integer"},
            "minLength": {"enum": [{"maxItems": "many"}]},
            "pattern": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$", "description": "x" * 600},
            "properties": {"type": "object", "properties": {"maxProperties": {"const": {"minItems": -1}}}},
        },
        "default": {"pattern": "a{5000}"},
    }
    named = {"name": "x", "schema": schema}
    assert chat(service, response_format={"type": "json_schema", "json_schema": named}).status_code == 200


def test_without_retrieval_the_messages_alone_are_read(service: OpenAIService):
    """Also for what Open WebUI asks beside a chat."""
    history = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"}]
    messages = [*history, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": ASKED}]
    answer = chat(service, messages=messages, retrieval=False).json()
    assert (answer["ragkv"]["passages"], answer["ragkv"]["no_passages"]) == ([], True)
    assert answer["choices"][0]["message"]["citations"] == []
    assert service.engine.latest.plan is None
    title = [{"role": "user", "content": "### Task:\nGenerate a concise title of this chat."}]
    assert chat(service, messages=title).json()["ragkv"]["passages"] == []
    assert respond(service, retrieval=False).json()["ragkv"]["passages"] == []
    assert chat(service, messages=messages).json()["ragkv"]["passages"] != []


def test_pasted_passages_are_answered_with_a_warning(service: OpenAIService, subtests: pytest.Subtests):
    pasted = f"{'Ada wrote the first program. ' * 60}{ASKED}"
    warning = (
        f"the message has {len(pasted):,} characters: passages put into it are computed anew and disturb the search; ask "
        "the question alone, or set retrieval to false"
    )
    messages = [{"role": "user", "content": pasted}]

    def facts(stream: str) -> Any:
        """Those of the last event that has some."""
        events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
        return [event.get("response", event)["ragkv"] for event in events if "ragkv" in event.get("response", event)][
            -1
        ]

    def ask(**fields: Any) -> Any:
        return service.http.post("/v1/ask", json={"question": pasted} | fields).json()

    for way, answer in {
        "chat": chat(service, messages=messages).json()["ragkv"],
        "stream of chat": facts(chat(service, messages=messages, stream=True).text),
        "response": respond(service, input=pasted).json()["ragkv"],
        "stream of response": facts(respond(service, input=pasted, stream=True).text),
        "ask": ask(),
    }.items():
        with subtests.test(way):
            assert answer["warnings"] == [warning]
            assert answer["passages"] != [], "answered as any other"
    (about_system,) = respond(service, instructions=pasted).json()["ragkv"]["warnings"]
    assert about_system.startswith(f"the instructions have {len(pasted):,} characters, which are computed anew")
    assert chat(service).json()["ragkv"]["warnings"] == []
    assert chat(service, messages=messages, retrieval=False).json()["ragkv"]["warnings"] == []
    alone = ask(retrieval=False)
    assert (alone["warnings"], alone["passages"], alone["no_passages"]) == ([], [], True)


def test_a_question_that_nothing_was_found_for_is_answered_so(service: OpenAIService):
    empty = service.http.post("/v1/vector_stores", json={"name": "empty"}).json()["id"]
    latest = service.engine.latest
    answer = chat(service, vector_store_ids=[empty]).json()
    assert "upload one, or ask another" in answer["choices"][0]["message"]["content"]
    assert (answer["choices"][0]["finish_reason"], answer["ragkv"]["no_passages"]) == ("stop", True)
    assert service.engine.latest is latest
    asked = service.http.post("/v1/ask", json={"question": ASKED, "filter": {"nowhere": "1"}})
    assert (asked.status_code, asked.json()["no_passages"], asked.json()["citations"]) == (200, True, [])
    assert service.http.post("/v1/ask", json={"question": ASKED, "collection": "nowhere"}).status_code == 404


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
