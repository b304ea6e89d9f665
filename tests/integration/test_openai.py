"""The unmodified `openai` client against the service, over a real connection, around an engine that echoes."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.keys import issue_key_by_name
from ragkv.models import public_name
from ragkv.parts import Parts
from ragkv.redis_door import EmbeddedRedis
from tests.echo_engine import EchoEngine
from tests.over_http import ADA, serving, upload, wait_until

ANSWER = "Ada Lovelace wrote it."
QUESTION = [{"role": "user", "content": "Who wrote the first program?"}]


@pytest.fixture
def key(parts: Parts) -> str:
    return issue_key_by_name(parts.database, "default", "tests", ["admin"]).key


@pytest.fixture
def base_url(parts: Parts, redis_server: EmbeddedRedis) -> Iterator[str]:
    with serving(parts) as client:
        yield f"{client.base_url}/v1"


@pytest.fixture
def client(base_url: str, key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
def model(parts: Parts) -> str:
    return public_name(parts.settings)


@pytest.fixture
def document(client: OpenAI, ingest: IngestParts) -> str:
    """A document of the default collection, uploaded the native way, that is ready."""
    response = upload(client._client, headers=client.auth_headers)
    ingest_document(response.json()["id"], ingest)
    return str(response.json()["id"])


class TestModels:
    def test_the_model_is_listed_alone_and_with_each_collection(self, client: OpenAI, model: str):
        client.vector_stores.create(name="papers / 2024")

        assert [one.id for one in client.models.list()] == [model, f"{model}@default", f"{model}@papers / 2024"]

    def test_a_model_is_found_by_its_id(self, client: OpenAI, model: str):
        assert client.models.retrieve(model).owned_by == "ragkv"
        assert client.models.retrieve(f"{model}@default").id == f"{model}@default"
        for name in ("gpt-4o", f"{model}@nowhere"):
            with pytest.raises(openai.NotFoundError) as raised:
                client.models.retrieve(name)
            assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


class TestChat:
    def test_an_answer_comes_with_its_sources_and_numbers(self, client: OpenAI, model: str, document: str):
        completion = client.chat.completions.create(model=model, messages=QUESTION, temperature=0)

        assert (completion.object, completion.model) == ("chat.completion", model)
        assert completion.choices[0].message.content == ANSWER
        assert completion.choices[0].finish_reason == "stop"
        assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
        assert completion.usage.prompt_tokens_details.cached_tokens == 0
        citation = completion.choices[0].message.citations[0]
        assert (citation["file_id"], citation["filename"]) == (document, "ada.md")
        assert completion.ragkv["timings"]["ttft_ms"] > 0

    def test_a_stream_gives_the_same_piece_by_piece(self, client: OpenAI, model: str, document: str):
        options = {"include_usage": True}
        chunks = list(client.chat.completions.create(model=model, messages=QUESTION, stream=True, stream_options=options))

        *pieces, last, usage = chunks
        assert pieces[0].choices[0].delta.role == "assistant"
        assert "".join(chunk.choices[0].delta.content for chunk in pieces) == ANSWER
        assert last.choices[0].finish_reason == "stop"
        assert last.choices[0].delta.citations[0]["document_id"] == document
        assert last.ragkv["timings"]["total_ms"] > 0
        assert (usage.choices, usage.usage.completion_tokens) == ([], 4)
        assert len({chunk.id for chunk in chunks}) == 1
