"""Kept answers over HTTP, with the real encoder and a real Redis around an engine that echoes."""

import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.answer_cache.cache import cache_rule
from ragkv.service.answer_cache.ring import MAX_ENTRIES, RingName, record_type
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.changes import amend_document, replace_document
from ragkv.service.documents.documents import accept_document, delete_document
from ragkv.service.parts import Parts
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.openai_bodies import SERVED
from tests.support.over_http import Client, assert_problem, events_of, upload

QUESTION = "Who wrote the first program?"


@pytest.fixture
def keeping(client: Client, answerable: str) -> Client:
    """A client of a service whose default collection keeps answers, and whose one document is ready."""
    changed = client.patch("/v1/collections/default", json={"answer_cache": {"enabled": True, "threshold": 0.9}})
    assert changed.json()["answer_cache"] == {"enabled": True, "threshold": 0.9, "ttl_s": 86400} | dict.fromkeys(
        ("hits", "misses", "skipped", "hit_rate")
    )
    return client


def ask(client: Client, question: str = QUESTION, **more: Any) -> dict[str, Any]:
    response = client.post("/v1/ask", json={"question": question} | more)
    assert response.status_code == 200, response.text
    return dict(response.json())


def counts(client: Client) -> tuple[int, int, int]:
    cache = client.get("/v1/collections/default").json()["answer_cache"]
    return cache["hits"], cache["misses"], cache["skipped"]


def other_engine_words(engine: EchoEngine) -> None:
    engine.words = ["Somebody", "else."]


class TestHits:
    def test_the_same_question_again_is_answered_without_the_engine(self, keeping: Client, engine: EchoEngine):
        first = ask(keeping)
        other_engine_words(engine)
        again = ask(keeping)

        assert first["cached_answer"] is None
        assert again["answer"] == first["answer"] == "Ada Lovelace wrote it."
        cached = again["cached_answer"]
        assert cached["question"] == QUESTION and cached["similarity"] > 0.999 and 0 <= cached["age_s"] < 60
        assert again["citations"] == first["citations"]
        assert [p["text"] for p in again["passages"]] == [p["text"] for p in first["passages"]]
        assert not any(
            again["usage"][kind] for kind in ("prompt", "computed", "stitched", "completion", "total_tokens")
        )
        assert again["timings"]["engine_ttft_ms"] == 0 < again["timings"]["ttft_ms"]
        assert counts(keeping) == (1, 1, 0)

    def test_what_another_version_kept_is_a_miss_and_takes_no_feedback(self, keeping: Client, parts: Parts):
        answer_id = ask(keeping)["id"]
        for key in parts.redis.scan_iter("ragkv:answers:*:bodies"):
            parts.redis.hset(key, "0", msgspec.msgpack.encode(["another form"]))
        parts.redis.set(f"ragkv:recent:{tenant(parts)}:{answer_id}", msgspec.msgpack.encode(["another form"]))

        assert ask(keeping)["cached_answer"] is None
        assert keeping.put(f"/v1/answers/{answer_id}/feedback", json={"rating": "up"}).status_code == 404
        assert (
            parts.recent_answers.keep_only(tenant(parts), parts.default_collection.collection_id, lambda ids: {}) == 2
        )

    def test_a_question_that_means_the_same_is_a_hit(self, keeping: Client):
        ask(keeping)
        again = ask(keeping, "Please tell me who wrote the first program.")

        assert again["cached_answer"]["question"] == QUESTION
        assert 0.9 <= again["cached_answer"]["similarity"] < 0.999

    def test_a_stream_gives_a_kept_answer_in_one_piece(self, keeping: Client):
        ask(keeping)
        response = keeping.post("/v1/ask", json={"question": QUESTION, "stream": True})

        (delta, text), (done, value) = events_of(response.text)
        assert (delta, done, text) == ("delta", "done", {"text": "Ada Lovelace wrote it."})
        assert value["cached_answer"]["question"] == QUESTION

    def test_what_somebody_else_asked_is_for_admins_alone(self, keeping: Client, parts: Parts):
        """Keys share answers all the same, over each of the interfaces."""
        ask(keeping)
        shown = {}
        for scope in ("read", "write", "admin"):
            key = issue_key_by_name("default", "x", [scope], parts.database).key
            headers = {"authorization": f"Bearer {key}"}
            bodies = {
                "/v1/ask": {"question": QUESTION},
                "/v1/chat/completions": {"model": SERVED, "messages": [{"role": "user", "content": QUESTION}]},
                "/v1/responses": {"model": SERVED, "input": QUESTION},
            }
            for path, body in bodies.items():
                answer = keeping.post(path, json=body, headers=headers).json()
                shown[scope, path] = answer.get("ragkv", answer)["cached_answer"]["question"]

        assert {scope: {shown[scope, path] for path in bodies} for scope in ("read", "write", "admin")} == {
            "read": {None},
            "write": {None},
            "admin": {QUESTION},
        }

    def test_a_streamed_answer_is_kept_too(self, keeping: Client):
        assert keeping.post("/v1/ask", json={"question": QUESTION, "stream": True}).status_code == 200

        assert ask(keeping)["cached_answer"]


class TestMisses:
    def test_nothing_is_kept_unless_the_collection_says_so(self, client: Client, answerable: str):
        assert client.get("/v1/collections/default").json()["answer_cache"]["enabled"] is False
        ask(client)
        assert ask(client)["cached_answer"] is None
        assert counts(client) == (0, 0, 0)

    def test_a_question_that_asks_something_else_is_answered_anew(self, keeping: Client, subtests: pytest.Subtests):
        ask(keeping)
        for question in (
            "Who wrote the second program?",
            "Who wrote the first program in 1843?",
            "Where was the first program written?",
        ):
            with subtests.test(question=question):
                assert ask(keeping, question)["cached_answer"] is None

    def test_so_is_one_that_wants_another_answer(self, keeping: Client, subtests: pytest.Subtests):
        for wish in [
            {"mode": "full"},
            {"policy": "none"},
            {"recompute_ratio": 0.5},
            {"block_size": 8},
            {"sparse_ratio": 0.5},
            {"top_k": 3},
            {"hops": 1},
            {"max_tokens": 2},
            {"answer_cache": False},
            {"history": [{"role": "user", "content": "Hello"}]},
        ]:
            with subtests.test(wish=wish):
                ask(keeping)

                assert ask(keeping, **wish)["cached_answer"] is None
                assert ask(keeping)["cached_answer"], "the first answer is still there"

    def test_so_is_one_about_some_of_the_documents(self, keeping: Client, answerable: str):
        ask(keeping)

        assert ask(keeping, document_ids=[answerable])["cached_answer"] is None
        assert ask(keeping, document_ids=[answerable])["cached_answer"]

    def test_a_question_bound_to_the_day_is_neither_looked_for_nor_kept(self, keeping: Client):
        for _ in range(2):
            assert ask(keeping, "Who wrote the first program today?")["cached_answer"] is None
        assert counts(keeping) == (0, 0, 2)

    def test_an_answer_ends_with_its_time(self, keeping: Client, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        ask(keeping)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86401)

        assert ask(keeping)["cached_answer"] is None

    def test_a_higher_threshold_counts_at_once(self, keeping: Client):
        ask(keeping)
        keeping.patch("/v1/collections/default", json={"answer_cache": {"threshold": 1.0}})

        assert ask(keeping, "Please tell me who wrote the first program.")["cached_answer"] is None

    def test_another_tenant_gets_nothing_of_it(self, keeping: Client, parts: Parts, ingest: IngestParts):
        """The same bytes, the same question, and a cache that is on."""
        ask(keeping)
        headers = {"Authorization": f"Bearer {issue_key_by_name('other', 'x', ['admin'], parts.database).key}"}
        keeping.headers.update(headers)
        ingest_document(upload(keeping).json()["id"], ingest)
        keeping.patch("/v1/collections/default", json={"answer_cache": {"enabled": True, "threshold": 0.5}})

        assert ask(keeping)["cached_answer"] is None

    def test_without_redis_every_question_is_answered_anew(
        self, keeping: Client, parts: Parts, redis_server: EmbeddedRedis
    ):
        ask(keeping)
        redis_server.stop()

        assert ask(keeping)["cached_answer"] is None
        assert parts.answer_cache.unavailable > 0
        assert keeping.get("/v1/collections/default").json()["answer_cache"]["hits"] is None


CHANGES: dict[str, Callable[[Parts, str], object]] = {
    "insert": lambda parts, document: insert(parts),
    "replace": lambda parts, document: replace_document(
        tenant(parts), document, "b.md", BytesIO(b"# B\n\nBob."), parts.intake, parts.removal
    ),
    "delete": lambda parts, document: delete_document(tenant(parts), document, parts.removal),
    "metadata": lambda parts, document: amend_document(tenant(parts), document, parts.database, patch={"year": 1}),
    "name": lambda parts, document: amend_document(tenant(parts), document, parts.database, name="c.md"),
}


class TestGenerations:
    @pytest.mark.parametrize("change", CHANGES)
    def test_every_change_of_the_collection_is_a_new_generation(
        self, keeping: Client, parts: Parts, answerable: str, ingest: IngestParts, change: str
    ):
        ingest_document(insert(parts, b"# Grace\n\nGrace Hopper wrote the first compiler.\n"), ingest)
        ask(keeping)
        before = generation(parts)
        CHANGES[change](parts, answerable)

        assert generation(parts) == before + 1
        assert ask(keeping)["cached_answer"] is None

    def test_each_step_of_reading_a_document_that_shows_is_one(
        self, keeping: Client, parts: Parts, ingest: IngestParts
    ):
        """Accepted, searchable, ready."""
        before = generation(parts)
        ingest_document(insert(parts), ingest)

        assert generation(parts) - before == 3

    def test_the_same_bytes_again_are_no_change(self, keeping: Client):
        ask(keeping)
        assert upload(keeping).status_code == 200

        assert ask(keeping)["cached_answer"]


class TestRing:
    def test_the_newest_are_kept_and_what_comes_late_is_not(self, parts: Parts, redis_server: EmbeddedRedis):
        ring, name = parts.answer_ring, RingName("t", "c", "r", 7)
        for number in range(MAX_ENTRIES + 2):
            assert ring.put(name, record(number), str(number).encode(), 60)

        kept = ring.records(name, 4)
        assert len(kept) == MAX_ENTRIES
        assert min(kept["at"]) == 2
        assert ring.bodies(name, [0, 1, 2]) == [b"1000", b"1001", b"2"]
        assert not ring.put(RingName("t", "c", "r", 6), record(0), b"late", 60)
        assert ring.put(RingName("t", "c", "r", 8), record(5), b"next", 60)
        assert len(ring.records(name, 4)) == 0
        assert list(ring.records(RingName("t", "c", "r", 8), 4)["at"]) == [5]

    def test_what_is_forgotten_stays_so_when_an_overtaken_call_names_less(
        self, parts: Parts, redis_server: EmbeddedRedis
    ):
        ring = parts.answer_ring
        ring.forget("t", "c", 9)
        ring.forget("t", "c", 5)

        assert not ring.put(RingName("t", "c", "r", 8), record(0), b"late", 60)
        assert ring.put(RingName("t", "c", "r", 9), record(0), b"new", 60)


def test_answers_depend_on_the_bytes_of_the_reranker(parts: Parts, tmp_path: Path):
    digests = {parts.answer_digest}
    parts.reranker_folder = tmp_path / "reranker"
    parts.reranker_folder.mkdir()
    (parts.reranker_folder / "config.json").write_text("{}")
    for weights in (b"some", b"other"):
        (parts.reranker_folder / "model.safetensors").write_bytes(weights)
        del parts.answer_digest
        digests.add(parts.answer_digest)

    assert len(digests) == 3


def test_a_rule_out_of_range_is_refused(client: Client, subtests: pytest.Subtests):
    for cache in [
        {"threshold": 0.2},
        {"threshold": 1.5},
        {"ttl_s": 0},
        {"ttl_s": 10**9},
        {"enabled": "x"},
        {"typo": 1},
    ]:
        with subtests.test(cache=cache):
            assert_problem(client.patch("/v1/collections/default", json={"answer_cache": cache}), 400, "answer_cache")


def insert(parts: Parts, body: bytes = b"# Bob\n\nBob builds.\n") -> str:
    return accept_document(parts.default_collection, "bob.md", BytesIO(body), parts.intake).document_id


def record(number: int) -> bytes:
    """One whose moment is the number."""
    row = np.zeros(1, record_type(4))
    row["at"] = number
    return row.tobytes()


def tenant(parts: Parts) -> str:
    return parts.default_collection.tenant_id


def generation(parts: Parts) -> int:
    rule = cache_rule(parts.database, parts.default_collection.tenant_id, parts.default_collection.collection_id)
    assert rule is not None
    return rule.generation
