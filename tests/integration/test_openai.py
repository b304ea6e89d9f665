"""The unmodified `openai` client against the service, over a real connection, around an engine that echoes."""

import asyncio
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion_message import Annotation as ChatAnnotation
from openai.types.responses import Response, ResponseFileSearchToolCall, ResponseOutputMessage
from openai.types.vector_stores import VectorStoreFile

from ingest.parts import IngestParts
from ragkv.answer.service import NOTHING, NOTHING_CHOSEN, NOTHING_RELEVANT
from ragkv.service.access.rate import RateLimit
from ragkv.service.base.database import Database
from ragkv.service.base.tables import CollectionRow
from tests.support.over_http import ADA, assert_problem, events_of, upload, wait_until
from tests.support.over_openai import MAX_UPLOAD_BYTES, OpenAIService, openai_service

ANSWER = "Ada Lovelace wrote it."
ASKED = "Who wrote the first program?"
QUESTION = [{"role": "user", "content": ASKED}]
BABBAGE = b"# Charles Babbage\n\nCharles Babbage designed the difference engine in London.\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, loaded: IngestParts) -> Iterator[OpenAIService]:
    """One service for every test; each has vector stores of its own."""
    with openai_service(tmp_path_factory.mktemp("openai"), loaded) as service:
        upload(service.http, headers={"Authorization": f"Bearer {service.key}"})
        service.read_all()
        yield service


@pytest.fixture
def client(service: OpenAIService) -> Iterator[OpenAI]:
    service.engine.piece_s, service.engine.fail_after = 0.0, None
    with service.client() as client:
        yield client


@pytest.fixture
def model(service: OpenAIService) -> str:
    return service.model


@pytest.fixture
def store(client: OpenAI) -> str:
    """An empty vector store."""
    return client.vector_stores.create(name=f"store {uuid.uuid4().hex[:8]}").id


@pytest.fixture
def file(client: OpenAI) -> str:
    return client.files.create(file=("ada.md", ADA), purpose="assistants").id


@pytest.fixture
def read(client: OpenAI, service: OpenAIService, store: str, file: str) -> str:
    """The file, in the vector store and read."""
    client.vector_stores.files.create(store, file_id=file, attributes={"year": 1843, "author": "Menabrea"})
    service.read_all()
    return file


@contextmanager
def worker(service: OpenAIService) -> Iterator[None]:
    """Somebody reads documents meanwhile."""
    ending = threading.Event()

    def work() -> None:
        while not ending.wait(0.1):
            service.read_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@contextmanager
def asking(service: OpenAIService, way: str, body: dict[str, Any]) -> Iterator[None]:
    """A request whose answer nobody reads; the connection is closed on the way out."""
    request = service.http.build_request(
        "POST", f"/v1/{way}", json=body, headers={"Authorization": f"Bearer {service.key}"}
    )
    headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    url = request.url
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(f"POST {url.path} HTTP/1.1\r\n{headers}\r\n".encode() + request.content)
        yield


class TestModels:
    def test_the_model_is_listed_alone_and_with_each_collection(self, client: OpenAI, model: str):
        client.vector_stores.create(name="papers, 2024 @ home")

        listed = [one.id for one in client.models.list()]
        assert {model, f"{model}@default", f"{model}@papers, 2024 @ home"} <= set(listed)
        assert all(client.models.retrieve(one).id == one for one in listed)

    def test_a_store_without_a_name_is_no_listed_model_but_answers(self, client: OpenAI, model: str):
        unnamed = client.vector_stores.create()

        assert f"{model}@{unnamed.name}" not in [one.id for one in client.models.list()]
        named_by_id = client.chat.completions.create(model=f"{model}@{unnamed.id}", messages=QUESTION)
        assert named_by_id.ragkv["vector_store_id"] == unnamed.id
        client.vector_stores.update(unnamed.id, name="now named")
        assert f"{model}@now named" in [one.id for one in client.models.list()]

    def test_what_is_not_there_is_not_found(self, client: OpenAI, model: str):
        for name in ("gpt-4o", f"{model}@nowhere"):
            with pytest.raises(openai.NotFoundError) as raised:
                client.models.retrieve(name)
            assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


class TestChat:
    def test_an_answer_comes_with_its_sources_and_numbers(self, client: OpenAI, model: str, store: str, read: str):
        completion = client.chat.completions.create(
            model=model, messages=QUESTION, temperature=0, extra_body={"vector_store_ids": [store]}
        )

        assert (completion.object, completion.model) == ("chat.completion", model)
        assert completion.choices[0].message.content == ANSWER
        assert completion.choices[0].finish_reason == "stop"
        assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
        assert completion.usage.prompt_tokens_details.cached_tokens == 0
        citation = completion.choices[0].message.citations[0]
        assert (citation["file_id"], citation["filename"]) == (read, "ada.md")
        annotation = completion.choices[0].message.annotations[0]
        assert isinstance(annotation, ChatAnnotation)
        assert (annotation.type, annotation.url_citation.title) == ("url_citation", "ada.md")
        assert annotation.url_citation.end_index == citation["answer_end"]
        assert completion.ragkv["vector_store_id"] == store
        assert completion.ragkv["timings"]["ttft_ms"] > 0

    def test_a_stream_gives_the_same_piece_by_piece(self, client: OpenAI, model: str, store: str, read: str):
        options = {
            "include_usage": True,
            "continuous_usage_stats": True,
        }  # the second is vLLM's: guidellm always sends it
        body = {"vector_store_ids": [store]}
        with client.chat.completions.create(
            model=model, messages=QUESTION, stream=True, stream_options=options, extra_body=body
        ) as stream:
            *pieces, last, usage = list(stream)

        assert pieces[0].choices[0].delta.role == "assistant"
        assert "".join(chunk.choices[0].delta.content for chunk in pieces) == ANSWER
        assert last.choices[0].finish_reason == "stop"
        assert last.choices[0].delta.citations[0]["file_id"] == read
        assert last.choices[0].delta.annotations[0]["url_citation"]["title"] == "ada.md"
        assert last.ragkv["timings"]["total_ms"] > 0
        assert (usage.choices, usage.usage.completion_tokens) == ([], 4)
        assert len({chunk.id for chunk in (*pieces, last, usage)}) == 1

    def test_an_annotation_leads_to_the_cited_words_in_the_dashboard(
        self, client: OpenAI, service: OpenAIService, model: str, store: str, read: str
    ):
        message = client.chat.completions.create(model=f"{model}@{store}", messages=QUESTION).choices[0].message
        citation = message.citations[0]
        url = message.annotations[0].url_citation.url
        page = service.http.get(url, headers={"Authorization": f"Bearer {service.key}"})

        assert url.startswith(f"/admin/documents/{citation['document_id']}?at={citation['start']}-{citation['end']}-")
        assert page.status_code == 200
        assert "The cited words are no longer here" not in page.text
        assert f">{citation['quote']}</mark>" in page.text
        gone = service.http.get(url[:-8] + "00000000", headers={"Authorization": f"Bearer {service.key}"})
        assert "The cited words are no longer here" in gone.text

    def test_an_annotation_is_an_address_where_browsers_have_one(
        self, client: OpenAI, service: OpenAIService, model: str, monkeypatch: pytest.MonkeyPatch
    ):
        settings = msgspec.structs.replace(service.parts.settings, public_url="https://rag.example.com/")
        monkeypatch.setattr(service.parts, "settings", settings)
        message = client.chat.completions.create(model=model, messages=QUESTION).choices[0].message

        assert message.annotations[0].url_citation.url.startswith("https://rag.example.com/admin/documents/")

    def test_the_clients_own_helper_puts_a_stream_together(self, client: OpenAI, model: str):
        with client.chat.completions.stream(model=model, messages=QUESTION) as stream:
            for _ in stream:
                pass
            completion = stream.get_final_completion()

        assert completion.choices[0].message.content == ANSWER
        assert completion.usage is None

    def test_the_models_name_gives_the_collection_as_well(self, client: OpenAI, model: str, store: str, read: str):
        name = client.vector_stores.retrieve(store).name
        for suffix in (name, store):
            completion = client.chat.completions.create(model=f"{model}@{suffix}", messages=QUESTION)
            assert completion.choices[0].message.citations[0]["file_id"] == read
        same = client.chat.completions.create(
            model=f"{model}@{name}", messages=QUESTION, extra_body={"vector_store_ids": [store]}
        )
        assert same.ragkv["vector_store_id"] == store
        with pytest.raises(openai.BadRequestError, match="another collection"):
            client.chat.completions.create(
                model=f"{model}@default", messages=QUESTION, extra_body={"vector_store_ids": [store]}
            )

    def test_a_conversation_goes_on_with_what_was_answered(self, client: OpenAI, model: str):
        first = client.chat.completions.create(model=model, messages=QUESTION)
        messages = [
            *QUESTION,
            first.choices[0].message,
            {"role": "user", "content": [{"type": "text", "text": "When?"}]},
        ]
        second = client.chat.completions.create(model=model, messages=messages)

        assert second.usage.prompt_tokens > first.usage.prompt_tokens

    def test_system_messages_stand_in_the_prompt(self, client: OpenAI, model: str):
        alone = client.chat.completions.create(model=model, messages=QUESTION)
        told = client.chat.completions.create(
            model=model, messages=[{"role": "system", "content": "Answer like a pirate, in one word."}, *QUESTION]
        )

        assert told.usage.prompt_tokens > alone.usage.prompt_tokens

    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    def test_an_answer_ends_at_its_limit(self, client: OpenAI, model: str, name: str):
        completion = client.chat.completions.create(model=model, messages=QUESTION, **{name: 2})

        assert completion.choices[0].message.content == "Ada Lovelace"
        assert (completion.choices[0].finish_reason, completion.usage.completion_tokens) == ("length", 2)

    def test_an_engine_that_fails_half_way_ends_the_stream_with_an_error(
        self, client: OpenAI, service: OpenAIService, model: str
    ):
        service.engine.fail_after = 2
        with pytest.raises(openai.APIError, match="the engine failed"):
            list(client.chat.completions.create(model=model, messages=QUESTION, stream=True))

    def test_a_stream_without_a_token_is_kept_alive(
        self, client: OpenAI, service: OpenAIService, model: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("api.openai.streaming.KEEP_ALIVE_EVERY_S", 0.05)
        service.engine.piece_s = 0.3
        chunks = list(client.chat.completions.create(model=model, messages=QUESTION, stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == " ".join(service.engine.words)
        service.engine.fail_after = 0
        with pytest.raises(openai.APIError, match="the engine failed"):
            list(client.chat.completions.create(model=model, messages=QUESTION, stream=True))

    def test_an_answer_that_is_there_outlives_the_database(
        self, client: OpenAI, service: OpenAIService, model: str, read: str, monkeypatch: pytest.MonkeyPatch
    ):
        """Its citations, which name files, do not."""
        service.engine.piece_s = 0.3
        chunks = client.chat.completions.create(model=model, messages=QUESTION, stream=True)
        opening = next(iter(chunks))
        away = Database("postgresql://svc:hunter2@127.0.0.1:9/ragkv")
        monkeypatch.setattr(service.parts.database, "_reading", away._reading)
        *pieces, last = [opening, *chunks]

        assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == ANSWER
        assert last.choices[0].finish_reason == "stop"
        assert not last.choices[0].delta.citations

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize("way", ["chat/completions", "responses"])
    def test_closing_the_request_stops_the_generation(
        self, client: OpenAI, service: OpenAIService, model: str, way: str, stream: bool
    ):
        engine, closed = service.engine, service.engine.closed
        engine.piece_s = 1.0
        body = {"model": model, "stream": stream} | ({"input": ASKED} if way == "responses" else {"messages": QUESTION})
        with asking(service, way, body):
            wait_until(lambda: engine.running == 1)
        wait_until(lambda: engine.closed == closed + 1 and engine.running == 0)

    def test_forty_calls_at_once_are_all_answered(self, client: OpenAI, service: OpenAIService, model: str):
        """More than a tenant's concurrent questions: the others wait, without a retry of the client's."""
        service.engine.piece_s = 0.1
        calls = 40
        assert service.parts.settings.max_questions < calls

        async def ask() -> list[ChatCompletion]:
            async with AsyncOpenAI(base_url=service.base_url, api_key=service.key, max_retries=0) as gathering:
                create = gathering.chat.completions.create
                return await asyncio.gather(*(create(model=model, messages=QUESTION) for _ in range(calls)))

        answers = asyncio.run(ask())
        assert [answer.choices[0].message.content for answer in answers] == [ANSWER] * calls

    def test_an_answer_from_an_empty_vector_store_says_so(self, client: OpenAI, model: str, store: str):
        answer = client.chat.completions.create(
            model=model, messages=QUESTION, extra_body={"vector_store_ids": [store]}
        )
        assert answer.choices[0].message.content == NOTHING
        assert answer.choices[0].finish_reason == "stop"


class TestPassages:
    @pytest.fixture
    def three(self, client: OpenAI, service: OpenAIService, store: str) -> str:
        """A vector store with three files of one passage each."""
        for i, text in enumerate((ADA, BABBAGE, b"# Engines\n\nEngines were built in London.\n")):
            made = client.files.create(file=(f"{i}.md", text), purpose="assistants")
            client.vector_stores.files.create(store, file_id=made.id)
        service.read_all()
        return store

    def test_they_come_best_first_everywhere(
        self, client: OpenAI, service: OpenAIService, model: str, three: str, subtests: pytest.Subtests
    ):
        headers = {"Authorization": f"Bearer {service.key}"}
        asked = {"question": ASKED, "collection": three}
        named = {"model": model, "messages": QUESTION, "extra_body": {"vector_store_ids": [three]}}
        tool = {"model": model, "input": ASKED, "tools": file_search(three), "include": ["file_search_call.results"]}
        found = service.http.post("/v1/search", json=asked, headers=headers).json()["passages"]
        streamed = service.http.post("/v1/ask", json=asked | {"stream": True}, headers=headers)
        response = client.responses.create(**tool)

        assert len(found) == 3
        assert all(passage["prompt_position"] is None for passage in found)
        for way, facts in {
            "ask": service.http.post("/v1/ask", json=asked, headers=headers).json(),
            "stream of ask": dict(events_of(streamed.text))["done"],
            "chat": client.chat.completions.create(**named).ragkv,
            "stream of chat": list(client.chat.completions.create(**named, stream=True))[-1].ragkv,
            "response": response.ragkv,
            "stream of response": list(client.responses.create(**tool, stream=True))[-1].response.ragkv,
        }.items():
            with subtests.test(way):
                passages = facts["passages"]
                assert [passage["chunk_id"] for passage in passages] == [passage["chunk_id"] for passage in found]
                assert [passage["prompt_position"] for passage in passages] == [2, 1, 0], "the best stands last"
        assert [result.text for result in response.output[0].results] == [passage["text"] for passage in found]

    def test_those_below_the_score_threshold_are_left_out(
        self, client: OpenAI, service: OpenAIService, model: str, three: str
    ):
        def ranking(threshold: float, ranker: str = "auto") -> dict[str, Any]:
            return {"ranking_options": {"ranker": ranker, "score_threshold": threshold}}

        search = partial(client.vector_stores.search, three, query=ASKED)
        every = list(search())
        scores = [result.score for result in every]
        assert len(set(scores)) == 3
        assert scores == sorted(scores, reverse=True) and all(0 < score < 1 for score in scores)
        assert list(search(**ranking(scores[1], "default-2024-11-15"))) == every[:2]
        assert list(search(**ranking(1))) == []

        def respond(threshold: float) -> Response:
            tools = file_search(three, **ranking(threshold, "default-2024-11-15"))
            return client.responses.create(model=model, input=ASKED, tools=tools, include=["file_search_call.results"])

        response = respond(scores[1])
        assert [result.score for result in response.output[0].results] == scores[:2]
        assert len(response.ragkv["passages"]) == 2, "the prompt holds no others"
        nothing = respond(1)
        asked, headers = {"question": ASKED, "collection": three}, {"Authorization": f"Bearer {service.key}"}
        native = [
            [
                passage["score"]
                for passage in service.http.post(f"/v1/{way}", json=body, headers=headers).json()["passages"]
            ]
            for way in ("search", "ask")
            for body in (asked, asked | {"score_threshold": scores[1] / (1 - scores[1]) - 1e-9})
        ]
        assert [len(found) for found in native] == [3, 2, 3, 2]
        assert [score / (1 + score) for score in native[0]] == scores
        assert (nothing.output_text, nothing.ragkv["no_passages"]) == (NOTHING_RELEVANT, True)


def file_search(store: str, **options: Any) -> list[dict[str, Any]]:
    return [{"type": "file_search", "vector_store_ids": [store], **options}]


class TestResponses:
    def test_an_answer_cites_its_files(self, client: OpenAI, model: str, store: str, read: str):
        response = client.responses.create(
            model=model,
            input=ASKED,
            tools=file_search(store),
            include=["file_search_call.results"],
            metadata={"run": "1"},
        )

        assert (response.status, response.output_text, response.metadata) == ("completed", ANSWER, {"run": "1"})
        search, message = response.output
        assert isinstance(search, ResponseFileSearchToolCall) and isinstance(message, ResponseOutputMessage)
        assert search.queries == [ASKED]
        assert (search.results[0].file_id, search.results[0].filename) == (read, "ada.md")
        assert search.results[0].attributes == {"year": 1843, "author": "Menabrea"}
        annotation = message.content[0].annotations[0]
        assert (annotation.type, annotation.file_id, annotation.filename) == ("file_citation", read, "ada.md")
        assert annotation.index <= len(ANSWER)
        assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
        assert response.tools[0].vector_store_ids == [store]
        assert response.ragkv["timings"]["ttft_ms"] > 0

    def test_results_come_only_if_asked_for(self, client: OpenAI, model: str):
        for include in ([], ["reasoning.encrypted_content"]):
            assert client.responses.create(model=model, input=ASKED, include=include).output[0].results is None

    def test_a_stream_tells_each_step_in_order(self, client: OpenAI, model: str, store: str, read: str):
        events = list(
            client.responses.create(
                model=model,
                input=ASKED,
                tools=file_search(store),
                stream=True,
                include=["file_search_call.results"],
            )
        )

        assert [event.sequence_number for event in events] == list(range(len(events)))
        names = [event.type.removeprefix("response.") for event in events]
        assert names[:8] == [
            "created",
            "in_progress",
            "output_item.added",
            "file_search_call.in_progress",
            "file_search_call.searching",
            "file_search_call.completed",
            "output_item.added",
            "content_part.added",
        ]
        assert names[8:12] == ["output_text.delta"] * 4
        assert names[12:] == [
            "output_text.annotation.added",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.done",
            "completed",
        ]
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
        assert events[-3].item.results[0].file_id == read
        whole = client.responses.create(model=model, input=ASKED, tools=file_search(store))
        assert events[-1].response.output_text == whole.output_text
        assert events[-1].response.output[1].content[0].annotations == whole.output[1].content[0].annotations

    def test_the_clients_own_helper_follows_a_stream(self, client: OpenAI, model: str):
        with client.responses.stream(model=model, input=ASKED) as stream:
            for _ in stream:
                pass
            assert stream.get_final_response().output_text == ANSWER

    def test_a_conversation_goes_on_with_the_output_of_the_answer_before(self, client: OpenAI, model: str):
        turns: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": ASKED}]}]
        first = client.responses.create(model=model, input=turns)
        turns += [*first.output, {"role": "user", "content": "When was that?"}]
        second = client.responses.create(model=model, input=turns)

        assert second.usage.input_tokens > first.usage.input_tokens
        assert second.output[0].queries == ["When was that?"]

    def test_instructions_stand_in_the_prompt(self, client: OpenAI, model: str):
        alone = client.responses.create(model=model, input=ASKED)
        told = client.responses.create(model=model, input=ASKED, instructions="Answer like a pirate, in one word.")

        assert told.usage.input_tokens > alone.usage.input_tokens
        assert told.instructions == "Answer like a pirate, in one word."

    def test_an_answer_that_is_cut_off_is_incomplete(self, client: OpenAI, model: str):
        response = client.responses.create(model=model, input=ASKED, max_output_tokens=2)
        *_, last = client.responses.create(model=model, input=ASKED, max_output_tokens=2, stream=True)

        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (last.type, last.response.status) == ("response.incomplete", "incomplete")

    def test_an_engine_that_fails_half_way_fails_the_response(self, client: OpenAI, service: OpenAIService, model: str):
        service.engine.fail_after = 2
        *_, last = client.responses.create(model=model, input=ASKED, stream=True)

        assert (last.type, last.response.error.code) == ("response.failed", "server_error")
        assert "the engine failed" in last.response.error.message

    def test_filters_choose_the_files(self, client: OpenAI, model: str, store: str, read: str):
        def found(**filters: Any) -> bool:
            tools = file_search(store, filters=filters, max_num_results=3)
            return client.responses.create(model=model, input=ASKED, tools=tools).output_text != NOTHING_CHOSEN

        assert found(type="eq", key="year", value=1843)
        assert found(type="gte", key="year", value=1843.0)
        assert not found(type="gt", key="year", value=1843)
        assert found(type="in", key="author", value=["Menabrea", "Somerville"])
        assert found(
            type="or",
            filters=[{"type": "eq", "key": "year", "value": 1}, {"type": "ne", "key": "author", "value": "Babbage"}],
        )


class TestFiles:
    def test_a_file_is_kept_listed_read_and_deleted(self, client: OpenAI):
        made = client.files.create(file=("ada.md", ADA), purpose="user_data")

        assert (made.filename, made.bytes, made.purpose, made.status) == ("ada.md", len(ADA), "user_data", "processed")
        assert client.files.retrieve(made.id) == made
        assert client.files.content(made.id).read() == ADA
        assert made in list(client.files.list(purpose="user_data"))
        assert made not in list(client.files.list(purpose="assistants"))
        assert client.files.delete(made.id).deleted
        for gone in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                gone(made.id)

    def test_equal_bytes_are_several_files_and_stored_once(self, client: OpenAI, service: OpenAIService):
        body = uuid.uuid4().hex.encode()
        before = stored(service)
        one, two = (client.files.create(file=(name, body), purpose="assistants") for name in ("1.md", "2.md"))

        assert one.id != two.id
        assert len(stored(service)) == len(before) + 1
        client.files.delete(one.id)
        assert client.files.content(two.id).read() == body
        client.files.delete(two.id)
        assert stored(service) == before

    def test_lists_come_in_pages(self, client: OpenAI):
        made = [client.files.create(file=(f"{i}.md", b"%d" % i), purpose="user_data").id for i in range(5)]

        assert [file.id for file in client.files.list(purpose="user_data", limit=2)][:5] == made[::-1]
        ascending = client.files.list(purpose="user_data", limit=2, order="asc", after=made[1])
        assert [file.id for file in ascending] == made[2:]
        assert ascending.has_more

    def test_deleting_a_file_takes_it_out_of_every_vector_store(
        self, client: OpenAI, service: OpenAIService, file: str
    ):
        stores = [client.vector_stores.create(name=uuid.uuid4().hex[:9], file_ids=[file]).id for _ in range(2)]
        service.read_all()
        assert client.vector_stores.retrieve(stores[0]).file_counts.completed == 1

        client.files.delete(file)

        assert [client.vector_stores.retrieve(store).file_counts.total for store in stores] == [0, 0]
        assert not client.vector_stores.search(stores[0], query=ASKED).data

    def test_bad_files_are_refused_with_the_reason(self, client: OpenAI):
        with pytest.raises(openai.BadRequestError, match="empty"):
            client.files.create(file=("none.md", b""), purpose="assistants")
        with pytest.raises(openai.BadRequestError) as raised:
            client.files.create(file=("a.jsonl", b"{}"), purpose="fine-tune")
        assert raised.value.param == "purpose"
        with pytest.raises(openai.APIStatusError) as too_large:
            client.files.create(file=("long.md", b"x" * (MAX_UPLOAD_BYTES + 1)), purpose="assistants")
        assert too_large.value.status_code == 413
        with pytest.raises(openai.BadRequestError, match="'expires_after': omit it") as raised:
            client.files.create(
                file=("a.md", b"a"), purpose="assistants", expires_after={"anchor": "created_at", "seconds": 3600}
            )
        assert raised.value.param == "expires_after"


class TestVectorStores:
    def test_a_vector_store_is_a_collection(self, client: OpenAI, service: OpenAIService):
        made = client.vector_stores.create(name="atlas")

        assert (made.name, made.status, made.file_counts.total) == ("atlas", "completed", 0)
        shown = service.http.get(
            f"/v1/collections/{made.id}", headers={"Authorization": f"Bearer {service.key}"}
        ).json()
        assert shown["name"] == "atlas"
        assert client.vector_stores.update(made.id, name="maps").name == "maps"
        assert client.vector_stores.retrieve(made.id).name == "maps"
        assert client.vector_stores.update(made.id).name == "maps"
        assert client.vector_stores.delete(made.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.retrieve(made.id)

    def test_names_are_unique(self, client: OpenAI):
        made = client.vector_stores.create()
        with pytest.raises(openai.ConflictError) as raised:
            client.vector_stores.create(name=made.name)
        assert raised.value.response.headers["x-should-retry"] == "false"

    def test_lists_come_in_pages_both_ways(self, client: OpenAI):
        made = [client.vector_stores.create(name=f"page {i}").id for i in range(4)]

        assert [store.id for store in client.vector_stores.list(limit=2)][:4] == made[::-1]
        assert [store.id for store in client.vector_stores.list(limit=1, order="asc", after=made[0])] == made[1:]
        page = client.vector_stores.list(limit=2, before=made[0])
        assert [store.id for store in page.data] == [made[2], made[1]]
        assert page.has_more
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.list(after="0" * 32)

    def test_a_list_does_not_go_on_from_an_item_that_is_deleted(self, client: OpenAI):
        store = client.vector_stores.create().id
        assert client.vector_stores.list(limit=1).data[0].id == store
        client.vector_stores.delete(store)

        with pytest.raises(openai.NotFoundError, match="read the list from its start"):
            client.vector_stores.list(after=store)
        with pytest.raises(openai.NotFoundError, match="read the list from its start"):
            client.vector_stores.list(before=store)

    def test_a_name_that_no_path_could_hold_is_refused(self, client: OpenAI, service: OpenAIService, store: str):
        """In the native API too. A store that has such a name from before keeps it, and other changes are made."""
        for refused in (
            partial(client.vector_stores.create, name="a/b"),
            partial(client.vector_stores.update, store, name="a/b"),
        ):
            with pytest.raises(openai.BadRequestError, match="has a slash, so that paths could not name"):
                refused()
        with pytest.raises(openai.BadRequestError, match="is a step in paths"):
            client.vector_stores.create(name="..")
        headers = {"Authorization": f"Bearer {service.key}"}
        assert_problem(service.http.post("/v1/collections", json={"name": "a/b"}, headers=headers), 422, "slash")
        with service.parts.database.writing() as session:
            session.get_one(CollectionRow, store).name = "a/b"
        assert client.vector_stores.update(store, name="a/b").name == client.vector_stores.retrieve(store).name == "a/b"

    def test_it_may_begin_with_files_all_or_none(self, client: OpenAI, file: str):
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.create(name="half", file_ids=[file, "0" * 32])
        assert client.vector_stores.create(name="half", file_ids=[file]).file_counts.in_progress == 1

    def test_there_is_none_whose_files_are_too_many(self, service: OpenAIService):
        settings = service.parts.settings
        with service.client(service.key_of("few", "admin")) as client:
            files = [client.files.create(file=(f"{n}.md", b"%d" % n), purpose="assistants").id for n in range(2)]
            service.parts.settings = msgspec.structs.replace(settings, max_tenant_documents=1)
            try:
                with pytest.raises(openai.APIStatusError, match="at most 1 document:") as raised:
                    client.vector_stores.create(name="full", file_ids=files)
                made = client.vector_stores.create(name="full", file_ids=files[:1])
            finally:
                service.parts.settings = settings
            assert raised.value.status_code == 413
            assert [store.id for store in client.vector_stores.list() if store.name == "full"] == [made.id]

    def test_the_default_collection_stays(self, client: OpenAI):
        with pytest.raises(openai.ConflictError):
            client.vector_stores.delete("default")


class TestFilesOfAVectorStore:
    def test_the_clients_helpers_upload_and_wait(self, client: OpenAI, service: OpenAIService, store: str):
        with worker(service):
            done = client.vector_stores.files.upload_and_poll(
                vector_store_id=store, file=("b.md", BABBAGE), attributes={"draft": False}, poll_interval_ms=200
            )

        assert (done.status, done.vector_store_id, done.usage_bytes) == ("completed", store, len(BABBAGE))
        assert done.attributes == {"draft": False}
        assert client.files.retrieve(done.id).filename == "b.md"

    def test_clients_are_told_when_to_ask_again_while_files_are_read(
        self, client: OpenAI, service: OpenAIService, store: str, file: str
    ):
        """openai-node waits 5 s otherwise."""
        batch = client.vector_stores.file_batches.create(store, file_ids=[file])

        def waits() -> list[str | None]:
            files, batches = client.vector_stores.files, client.vector_stores.file_batches
            shown = (
                files.with_raw_response.retrieve(file, vector_store_id=store),
                batches.with_raw_response.retrieve(batch.id, vector_store_id=store),
            )
            return [response.headers.get("openai-poll-after-ms") for response in shown]

        assert waits() == ["500", "500"]
        service.read_all()
        assert waits() == [None, None]

    def test_a_file_is_shown_listed_changed_and_detached(self, client: OpenAI, store: str, read: str):
        files = client.vector_stores.files

        assert [file.id for file in files.list(store)] == [read]
        assert list(files.list(store, filter="in_progress")) == list(files.list(store, filter="cancelled")) == []
        assert "".join(part.text for part in files.content(read, vector_store_id=store)).count("analytical engine") == 1
        changed = files.update(read, vector_store_id=store, attributes={"year": 1844})
        assert changed.attributes == files.retrieve(read, vector_store_id=store).attributes == {"year": 1844}
        assert files.delete(read, vector_store_id=store).deleted
        assert client.files.retrieve(read).bytes == len(ADA)
        with pytest.raises(openai.NotFoundError):
            files.retrieve(read, vector_store_id=store)

    def test_it_is_what_the_clients_types_say(self, client: OpenAI, store: str, read: str):
        """The client itself takes whatever comes."""
        answer = client.vector_stores.files.with_raw_response.retrieve(read, vector_store_id=store)
        file = VectorStoreFile.model_validate_json(answer.http_response.text)

        assert file.chunking_strategy is not None and file.chunking_strategy.type == "other"

    def test_files_with_equal_bytes_are_one_document_that_the_last_takes_along(
        self, client: OpenAI, service: OpenAIService, store: str, read: str
    ):
        twin = client.files.create(file=("twin.md", ADA), purpose="assistants").id
        attached = client.vector_stores.files.create(store, file_id=twin)

        assert (attached.status, attached.attributes) == ("completed", {"year": 1843, "author": "Menabrea"})
        assert {file.id for file in client.vector_stores.files.list(store)} == {read, twin}
        client.vector_stores.files.delete(read, vector_store_id=store)
        assert len(client.vector_stores.search(store, query=ASKED).data) == 1
        client.vector_stores.files.delete(twin, vector_store_id=store)
        assert not client.vector_stores.search(store, query=ASKED).data

    def test_lists_do_not_go_on_from_a_file_that_is_detached_or_deleted(self, client: OpenAI, store: str, file: str):
        batch = client.vector_stores.file_batches.create(store, file_ids=[file]).id
        client.vector_stores.files.delete(file, vector_store_id=store)
        for read in (
            lambda: client.vector_stores.files.list(store, after=file),
            lambda: client.vector_stores.file_batches.list_files(batch, vector_store_id=store, after=file),
        ):
            with pytest.raises(openai.NotFoundError, match="read the list from its start"):
                read()
        client.files.delete(file)
        with pytest.raises(openai.NotFoundError, match="read the list from its start"):
            client.files.list(after=file)

    def test_a_document_that_was_uploaded_directly_goes_by_its_own_id(
        self, client: OpenAI, service: OpenAIService, store: str
    ):
        headers = {"Authorization": f"Bearer {service.key}"}
        form = {"collection": store, "metadata": '{"tags": ["a"], "year": 1991}'}
        document = upload(service.http, BABBAGE, data=form, headers=headers).json()["id"]

        (listed,) = client.vector_stores.files.list(store)
        assert (listed.id, listed.attributes) == (document, {"year": 1991})
        client.vector_stores.files.delete(document, vector_store_id=store)
        assert service.http.get(f"/v1/documents/{document}", headers=headers).status_code == 404

    @pytest.mark.parametrize("way", ["detach", "delete", "cancel"])
    @pytest.mark.parametrize("uploaded_first", [True, False])
    def test_a_document_that_was_uploaded_directly_stays_when_its_file_goes(
        self, client: OpenAI, service: OpenAIService, store: str, way: str, uploaded_first: bool
    ):
        headers = {"Authorization": f"Bearer {service.key}"}
        file = client.files.create(file=("b.md", BABBAGE), purpose="assistants").id

        def send() -> str:
            return str(upload(service.http, BABBAGE, data={"collection": store}, headers=headers).json()["id"])

        document = send() if uploaded_first else ""
        batch = client.vector_stores.file_batches.create(store, file_ids=[file]).id
        document = document or send()
        if way == "detach":
            client.vector_stores.files.delete(file, vector_store_id=store)
        elif way == "delete":
            client.files.delete(file)
        else:
            client.vector_stores.file_batches.cancel(batch, vector_store_id=store)

        assert [one.id for one in client.vector_stores.files.list(store)] == [document]
        assert service.http.get(f"/v1/documents/{document}/file", headers=headers).content == BABBAGE

    def test_a_replaced_document_is_no_longer_the_file(
        self, client: OpenAI, service: OpenAIService, store: str, read: str
    ):
        headers = {"Authorization": f"Bearer {service.key}"}
        form = {"collection": store}
        document = upload(service.http, ADA, data=form, headers=headers).json()["id"]
        service.http.put(f"/v1/documents/{document}", files={"file": ("new.md", BABBAGE)}, headers=headers)

        assert [file.id for file in client.vector_stores.files.list(store)] == [document]
        assert client.files.content(read).read() == ADA

    def test_a_file_that_cannot_be_read_fails_with_the_reason(self, client: OpenAI, service: OpenAIService, store: str):
        with worker(service):
            failed = client.vector_stores.files.upload_and_poll(
                vector_store_id=store, file=("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100)), poll_interval_ms=200
            )

        assert (failed.status, failed.last_error.code) == ("failed", "invalid_file")
        assert "it is an image" in failed.last_error.message
        assert client.vector_stores.retrieve(store).file_counts.failed == 1


class TestFileBatches:
    def test_the_clients_helpers_upload_many_and_wait(
        self, client: OpenAI, service: OpenAIService, store: str, file: str
    ):
        with worker(service):
            batch = client.vector_stores.file_batches.upload_and_poll(
                store,
                files=[("b.md", BABBAGE), ("c.md", b"# Clocks\n\nTick.\n")],
                file_ids=[file],
                poll_interval_ms=200,
            )

        assert (batch.status, batch.file_counts.completed, batch.file_counts.total) == ("completed", 3, 3)
        listed = list(client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store, limit=1))
        assert len(listed) == 3
        assert {one.status for one in listed} == {"completed"}

    def test_each_file_may_have_its_own_attributes(self, client: OpenAI, store: str, file: str):
        other = client.files.create(file=("b.md", BABBAGE), purpose="assistants").id
        client.vector_stores.file_batches.create(
            store, files=[{"file_id": file, "attributes": {"n": 1}}, {"file_id": other}]
        )

        shown = {one.id: one.attributes for one in client.vector_stores.files.list(store)}
        assert shown == {file: {"n": 1}, other: {}}

    def test_one_that_is_cancelled_takes_out_what_is_not_read(
        self, client: OpenAI, service: OpenAIService, store: str, read: str
    ):
        other = client.files.create(file=("b.md", BABBAGE), purpose="assistants").id
        batches = client.vector_stores.file_batches
        batch = batches.create(store, file_ids=[read, other])
        assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 1)

        cancelled = batches.cancel(batch.id, vector_store_id=store)

        assert (cancelled.status, cancelled.file_counts.cancelled) == ("cancelled", 1)
        assert batches.retrieve(batch.id, vector_store_id=store) == cancelled
        assert [file.id for file in client.vector_stores.files.list(store)] == [read]
        assert client.files.retrieve(other).id == other

    def test_one_that_is_finished_cannot_be_cancelled(self, client: OpenAI, store: str, read: str):
        batches = client.vector_stores.file_batches
        finished = batches.create(store, file_ids=[read])

        assert batches.cancel(finished.id, vector_store_id=store) == finished
        assert (finished.status, batches.retrieve(finished.id, vector_store_id=store)) == ("completed", finished)

    def test_a_batch_with_an_unknown_file_attaches_none(self, client: OpenAI, store: str, file: str):
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.file_batches.create(store, file_ids=[file, "0" * 32])
        assert list(client.vector_stores.files.list(store)) == []


class TestSearch:
    def test_passages_come_with_file_and_attributes(self, client: OpenAI, store: str, read: str):
        page = client.vector_stores.search(store, query=ASKED, max_num_results=1)

        (found,) = page.data
        assert (found.file_id, found.filename, found.attributes["year"]) == (read, "ada.md", 1843)
        assert "first program" in found.content[0].text
        assert found.score > 0

    def test_several_questions_are_asked_at_once(self, client: OpenAI, store: str, read: str):
        page = client.vector_stores.search(store, query=[ASKED, "Whose engine was it?"])

        assert page.search_query == [ASKED, "Whose engine was it?"]
        assert len({found.content[0].text for found in page.data}) == len(page.data) > 0

    def test_filters_narrow_it(self, client: OpenAI, store: str, read: str):
        def found(**filters: Any) -> bool:
            return bool(client.vector_stores.search(store, query=ASKED, filters=filters).data)

        assert found(type="lt", key="year", value=1900)
        assert not found(type="nin", key="author", value=["Menabrea"])
        assert found(
            type="and",
            filters=[
                {"type": "eq", "key": "author", "value": "Menabrea"},
                {"type": "lte", "key": "year", "value": 1843},
            ],
        )


class TestErrors:
    def test_who_asks_must_have_the_key_for_it(self, service: OpenAIService, model: str, store: str):
        with service.client("rk_wrong") as stranger, pytest.raises(openai.AuthenticationError) as raised:
            stranger.models.list()
        assert raised.value.code == "invalid_api_key"
        with service.client(service.key_of("default", "read")) as reader, pytest.raises(openai.PermissionDeniedError):
            reader.vector_stores.create(name="mine")
        with service.client(service.key_of("default", "write")) as writer, pytest.raises(openai.PermissionDeniedError):
            writer.vector_stores.delete(store)

    def test_what_belongs_to_another_tenant_is_not_found(
        self, service: OpenAIService, model: str, store: str, read: str
    ):
        with service.client(service.key_of("another", "admin")) as stranger:
            assert list(stranger.files.list()) == []
            for ask in (
                lambda: stranger.files.retrieve(read),
                lambda: stranger.files.list(after=read),
                lambda: stranger.vector_stores.retrieve(store),
                lambda: stranger.vector_stores.create(name="theirs", file_ids=[read]),
                lambda: stranger.responses.create(model=model, input=ASKED, tools=file_search(store)),
                lambda: stranger.chat.completions.create(model=f"{model}@{store}", messages=QUESTION),
            ):
                with pytest.raises(openai.NotFoundError):
                    ask()

    def test_an_engine_that_is_away_is_worth_another_try(self, client: OpenAI, service: OpenAIService, model: str):
        service.engine.started = False
        try:
            with pytest.raises(openai.InternalServerError) as raised:
                client.chat.completions.create(model=model, messages=QUESTION)
        finally:
            service.engine.started = True
        assert (raised.value.status_code, raised.value.type) == (503, "server_error")
        assert int(raised.value.response.headers["retry-after"]) > 0

    def test_who_asks_too_often_is_told_to_wait(self, service: OpenAIService):
        gate, before = service.parts.gate, service.parts.gate._limit
        gate._limit = RateLimit(service.parts.redis, 1, fails_open=False)
        try:
            with service.client() as client, pytest.raises(openai.RateLimitError) as raised:
                [client.models.list() for _ in range(2)]
        finally:
            gate._limit = before
        assert raised.value.code == "rate_limit_exceeded"
        assert int(raised.value.response.headers["retry-after"]) > 0

    def test_ways_that_are_not_there_say_so_in_the_same_form(self, client: OpenAI):
        with pytest.raises(openai.NotFoundError) as raised:
            client.completions.create(model="x", prompt="y")
        assert raised.value.type == "invalid_request_error"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve("resp_1")

    def test_files_count_against_the_tenants_quota(self, service: OpenAIService):
        settings = service.parts.settings
        with service.client(service.key_of("small", "admin")) as client:
            client.files.create(file=("a.md", b"x" * 80), purpose="assistants")
            service.parts.settings = msgspec.structs.replace(settings, max_tenant_bytes=100)
            try:
                client.files.create(file=("b.md", b"x" * 80), purpose="assistants")
                with pytest.raises(openai.APIStatusError, match="RAGKV_MAX_TENANT_BYTES") as raised:
                    client.files.create(file=("c.md", b"y" * 30), purpose="assistants")
            finally:
                service.parts.settings = settings
        assert raised.value.status_code == 413


def stored(service: OpenAIService) -> set[str]:
    return {path.name for path in service.parts.settings.files_dir.rglob("*") if path.is_file()}
