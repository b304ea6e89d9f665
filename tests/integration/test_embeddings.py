"""/v1/embeddings with the unmodified `openai` client, over a real connection."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from openai import OpenAI

from api.openai.embeddings import MAX_CHARS, MAX_TEXT_CHARS, MAX_TEXTS
from ingest.parts import IngestParts
from ragkv.models import encoder_name
from tests.support.over_http import ADA
from tests.support.over_openai import OpenAIService, openai_service

TEXTS = ["Who wrote the first program?", "Ada Lovelace.", "A lighthouse on an island, built of stone, painted white."]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, loaded: IngestParts) -> Iterator[OpenAIService]:
    with openai_service(tmp_path_factory.mktemp("embeddings"), loaded) as service:
        yield service


@pytest.fixture
def client(service: OpenAIService) -> Iterator[OpenAI]:
    with service.client() as client:
        yield client


@pytest.fixture
def model(service: OpenAIService) -> str:
    return encoder_name(service.parts.settings)


def test_texts_get_the_vectors_that_searches_use_in_their_order_in_either_encoding(
    client: OpenAI, service: OpenAIService, model: str
):
    expected = service.parts.question_encoder.encode(TEXTS)

    in_base64 = client.embeddings.create(model=model, input=TEXTS)
    as_numbers = client.embeddings.create(model=model, input=TEXTS, encoding_format="float", dimensions=384, user="u")

    for answer in (in_base64, as_numbers):
        assert (answer.object, answer.model) == ("list", model)
        assert [item.index for item in answer.data] == [0, 1, 2]
        vectors = np.array([item.embedding for item in answer.data])
        assert np.abs(vectors - expected).max() < 1e-5
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_the_clients_default_is_sent_as_base64_and_without_an_encoding_numbers_are(service: OpenAIService, model: str):
    body, headers = {"model": model, "input": "x"}, {"authorization": f"Bearer {service.key}"}
    answers = [
        service.http.post("/v1/embeddings", json=body | more, headers=headers).json()["data"][0]["embedding"]
        for more in ({}, {"encoding_format": None}, {"encoding_format": "base64"})
    ]
    assert [type(answer) for answer in answers] == [list, list, str]


def test_tokens_are_counted_as_far_as_the_encoder_reads(client: OpenAI, model: str):
    def tokens(text: str | list[str]) -> int:
        usage = client.embeddings.create(model=model, input=text).usage
        assert usage.prompt_tokens == usage.total_tokens
        return usage.total_tokens

    assert tokens("hello world") == 4, "with the signs for the beginning and the end"
    assert tokens(["hello world", "hello"]) == 7
    assert tokens("hello " * 1000) == 256, "the encoder's window"


def test_what_is_not_served_is_refused_with_the_reason(client: OpenAI, model: str, subtests: pytest.Subtests):
    for param, reason, fields in (
        ("input[0]", "send text, not tokens", {"input": [1, 2]}),
        ("input[0]", "send text, not tokens", {"input": [[1, 2]]}),
        ("input", "length >= 1", {"input": ""}),
        ("input", "length >= 1", {"input": []}),
        ("input[1]", "length >= 1", {"input": ["x", ""]}),
        ("input", f"length <= {MAX_TEXTS}", {"input": ["x"] * (MAX_TEXTS + 1)}),
        ("input", f"length <= {MAX_TEXT_CHARS}", {"input": "x" * (MAX_TEXT_CHARS + 1)}),
        ("input", "1,000,000", {"input": ["x" * 30_000] * (MAX_CHARS // 30_000 + 1)}),
        ("dimensions", "have 384", {"dimensions": 128}),
        ("encoding_format", "use 'base64' or 'float'", {"encoding_format": "int8"}),
        ("task", "unknown field", {"extra_body": {"task": "query"}}),
    ):
        with subtests.test(param=param, fields=str(fields)[:40]):
            with pytest.raises(openai.BadRequestError) as raised:
                client.embeddings.create(**{"model": model, "input": "x", "encoding_format": "float"} | fields)
            assert raised.value.param == param
            assert reason.lower() in raised.value.body["message"].lower()


def test_another_model_is_not_found_and_the_error_names_the_encoder(client: OpenAI, service: OpenAIService, model: str):
    for other in ("text-embedding-3-small", service.model):
        with pytest.raises(openai.NotFoundError, match=model) as raised:
            client.embeddings.create(model=other, input="x")
        assert (raised.value.param, raised.value.code) == ("model", "model_not_found")
    assert model not in {served.id for served in client.models.list()}, "clients offer what is listed for chats"


def test_a_key_that_may_read_suffices_and_none_does_not(service: OpenAIService, model: str):
    with service.client(service.key_of("readers", "read")) as reader:
        assert reader.embeddings.create(model=model, input="x").data
    with service.client(service.key_of("readers", "metrics")) as other, pytest.raises(openai.PermissionDeniedError):
        other.embeddings.create(model=model, input="x")
    with service.client("rk_wrong") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.embeddings.create(model=model, input="x")


def test_a_search_does_not_wait_for_a_large_request(client: OpenAI, service: OpenAIService, model: str):
    store = client.vector_stores.create(name="beside embeddings").id
    client.vector_stores.files.upload(vector_store_id=store, file=("ada.md", ADA))
    service.read_all()
    ended_at: list[float] = []

    def embed() -> None:
        client.embeddings.create(model=model, input=[f"Text {n}: " + "word " * 300 for n in range(160)])
        ended_at.append(time.monotonic())

    thread = threading.Thread(target=embed)
    thread.start()
    time.sleep(0.5)
    assert client.vector_stores.search(store, query="Who wrote the first program?").data
    searched_at = time.monotonic()
    assert not ended_at
    thread.join()
    assert ended_at[0] > searched_at
