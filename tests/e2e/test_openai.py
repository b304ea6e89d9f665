"""The unmodified `openai` client against `ragkv serve`, with the real engine and an API key."""

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from tests.e2e.service import SAMPLE, Service

QUESTION = "Who composed the music of Billy Elliot?"
MODEL = "SmolLM2-135M-Instruct"
NAMES = ("films.md", "aviation-and-space.pdf")


@pytest.fixture(scope="module")
def service(closed_service: Service) -> Service:
    return closed_service


@pytest.fixture(scope="module")
def client(service: Service, key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{service.client.base_url}/v1", api_key=key) as client:
        yield client


@pytest.fixture(scope="module")
def store(client: OpenAI, service: Service) -> str:
    """A vector store with two of the sample documents, uploaded in a batch; their KV is there."""
    store = client.vector_stores.create(name="sample").id
    paths = [SAMPLE / name for name in NAMES]
    batch = client.vector_stores.file_batches.upload_and_poll(store, files=paths)
    assert (batch.status, batch.file_counts.completed) == ("completed", len(NAMES))
    documents = service.client.get("/v1/documents", params={"collection": store}).json()["items"]
    for document in documents:
        assert service.finished(document["id"])["status"] == "ready"
    return store


def test_the_models_name_gives_the_collection(client: OpenAI, store: str):
    assert {MODEL, f"{MODEL}@sample"} <= {model.id for model in client.models.list()}


def test_files_are_listed_and_searched(client: OpenAI, store: str):
    names = {client.files.retrieve(file.id).filename for file in client.vector_stores.files.list(store)}
    found = client.vector_stores.search(store, query=QUESTION).data

    assert names == set(NAMES)
    assert found[0].filename == "films.md"
    assert "Billy Elliot" in found[0].content[0].text


def test_a_chat_completion_is_stitched_and_says_what_it_rests_on(client: OpenAI, store: str):
    completion = client.chat.completions.create(
        model=f"{MODEL}@sample", messages=[{"role": "user", "content": QUESTION}], max_tokens=16, temperature=0
    )

    message = completion.choices[0].message
    assert message.content
    assert {citation["filename"] for citation in message.citations} <= set(NAMES)
    assert message.citations
    assert 0 < completion.usage.prompt_tokens_details.cached_tokens < completion.usage.prompt_tokens
    assert completion.ragkv["usage"]["stitched"] > 0


def test_a_stream_of_chunks_gives_the_same_answer(client: OpenAI, store: str):
    def ask(*, stream: bool):
        return client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Where was the film Gaby: A True Story made?"}],
            max_completion_tokens=16,
            stream=stream,
            stream_options={"include_usage": True} if stream else None,
            extra_body={"vector_store_ids": [store]},
        )

    *chunks, usage = ask(stream=True)
    whole = ask(stream=False)

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert usage.usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_response_searches_and_cites(client: OpenAI, store: str):
    tools = [{"type": "file_search", "vector_store_ids": [store], "max_num_results": 4}]
    response = client.responses.create(
        model=MODEL, input=QUESTION, tools=tools, include=["file_search_call.results"], max_output_tokens=16
    )

    search, message = response.output
    assert response.output_text
    assert 0 < len(search.results) <= 4
    files = {file.id for file in client.vector_stores.files.list(store)}
    assert {result.file_id for result in search.results} <= files
    assert message.content[0].annotations
    assert {annotation.file_id for annotation in message.content[0].annotations} <= files
    assert response.usage.input_tokens_details.cached_tokens > 0

    with client.responses.stream(model=MODEL, input=QUESTION, tools=tools, max_output_tokens=16) as stream:
        events = list(stream)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type in {"response.completed", "response.incomplete"}
    assert text == events[-1].response.output_text == response.output_text


def test_errors_raise_the_clients_own_exceptions(client: OpenAI, service: Service, store: str):
    say = [{"role": "user", "content": QUESTION}]
    with pytest.raises(openai.NotFoundError, match=MODEL):
        client.chat.completions.create(model="gpt-4o", messages=say)
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=MODEL, messages=say, temperature=2.5)
    assert raised.value.param == "temperature"
    with pytest.raises(openai.APIStatusError) as too_long:
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Why? " * 9000}],
            extra_body={"vector_store_ids": [store]},
        )
    assert too_long.value.status_code == 413
    with OpenAI(base_url=client.base_url, api_key="rk_wrong") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_what_is_deleted_is_gone(client: OpenAI, store: str):
    """The last test: the others need the vector store."""
    files = [file.id for file in client.vector_stores.files.list(store)]
    assert client.files.delete(files[0]).deleted
    assert [file.id for file in client.vector_stores.files.list(store)] == files[1:]
    assert client.vector_stores.delete(store).deleted
    assert client.files.retrieve(files[1]).id == files[1]
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.retrieve(store)
