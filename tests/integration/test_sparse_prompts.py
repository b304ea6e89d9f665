"""Sparse prompts over HTTP, with real KV and an engine that echoes."""

import io
from typing import Any

import msgspec
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.documents import LONG
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import Client, assert_problem

ASKED = {"question": "Which engine stood in hall 3?", "policy": "none"}


@pytest.fixture
def ingested(parts: Parts, ingest: IngestParts, engine: EchoEngine) -> str:
    engine.stitches = True
    document_id = store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts.intake).document_id
    ingest_document(document_id, ingest)
    return document_id


def ask(client: Client, **options: Any) -> dict[str, Any]:
    done = client.post("/v1/ask", json=ASKED | options)
    assert done.status_code == 200, done.text
    body: dict[str, Any] = done.json()
    return body


def ids(passages: list[dict[str, Any]]) -> list[str]:
    return [passage["chunk_id"] for passage in passages]


@pytest.mark.usefixtures("ingested")
class TestSparsePrompts:
    def test_some_passages_are_read_and_the_others_named(self, client: Client):
        every, some = ask(client), ask(client, sparse_ratio=0.5)
        read, omitted = ids(some["passages"]), ids(some["omitted_passages"])

        assert len(read) > 0 and len(omitted) > 0
        assert sorted(read + omitted) == sorted(ids(every["passages"]))
        assert read == [one for one in ids(every["passages"]) if one in read]  # best first
        assert every["omitted_passages"] == []
        tokens = {passage["chunk_id"]: passage["kv"]["tokens"] for passage in every["passages"]}
        assert every["usage"]["prompt"] - some["usage"]["prompt"] == sum(tokens[one] for one in omitted)
        assert sum(tokens[one] for one in read) <= 0.5 * sum(tokens.values())
        assert {citation["chunk_id"] for citation in some["citations"]} <= set(read)

    @pytest.mark.parametrize("options", [{"recompute_ratio": 1.0, "policy": "head"}, {"mode": "full"}])
    def test_full_prefill_reads_all(self, client: Client, options: dict[str, Any]):
        every, full = ask(client), ask(client, sparse_ratio=0.5, **options)
        assert (ids(full["passages"]), full["omitted_passages"]) == (ids(every["passages"]), [])

    def test_passages_that_the_window_has_no_room_for_are_named(self, client: Client, settings: Settings):
        every, crowded = ask(client), ask(client, max_tokens=settings.max_model_len - 400)
        read, omitted = ids(crowded["passages"]), ids(crowded["omitted_passages"])

        assert len(read) > 0 and len(omitted) > 1
        assert sorted(read + omitted) == sorted(ids(every["passages"]))
        assert crowded["warnings"] == [
            f"max_tokens leaves no room in the model's window for {len(omitted)} passages found: lower it"
        ]

    def test_what_is_no_share_is_refused(self, client: Client, subtests: pytest.Subtests):
        for ratio in [0, 1.01, -1, "half"]:
            with subtests.test(ratio=ratio):
                assert_problem(client.post("/v1/ask", json=ASKED | {"sparse_ratio": ratio}), 400)

    def test_the_best_are_read_whether_their_kv_is_there_or_not(self, client: Client, parts: Parts):
        every = ids(ask(client)["passages"])
        there = ids(ask(client, sparse_ratio=0.2)["passages"])
        parts.kv_store.delete(list(parts.kv_store.keys()))

        answer = ask(client, sparse_ratio=0.2)
        read = ids(answer["passages"])
        assert read == there
        assert read[0] == every[0]
        assert 0 < len(read) < len(every)
        assert answer["usage"]["failed_chunks"] == len(read)


class TestSetting:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, sparse_ratio=0.5)

    @pytest.mark.usefixtures("ingested")
    def test_it_is_what_questions_have_that_say_nothing(self, client: Client):
        assert len(ask(client)["omitted_passages"]) > 0
        assert ask(client, sparse_ratio=1)["omitted_passages"] == []
