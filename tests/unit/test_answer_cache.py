"""Kept answers: when one serves, over a real Redis."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ragkv.answer.question import Answer, Question, Timings, Turn, Usage
from ragkv.chunk import Chunk
from ragkv.retrieve.index import Vectors
from ragkv.service.answer_cache.cache import AnswerCache, CacheRule, Look
from ragkv.service.answer_cache.ring import AnswerRing, AnswerRoom
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.redis import connect
from ragkv.settings import Settings

ASKED = Question("t", "c", "Who wrote the first program?")
ANSWER = Answer(
    id=ASKED.id,
    text="Ada Lovelace wrote it.",
    finish_reason="stop",
    citations=(),
    passages=(),
    timings=Timings(*[0.0] * 7),
    usage=Usage(prompt=0, cached=0, stitched=0, recomputed=0, computed=0, completion=0, failed_chunks=0),
)
RULE = CacheRule(threshold=0.9, ttl_s=3600, generation=1)


def no_chunks(tenant_id: str, chunk_ids: list[str]) -> list[Chunk]:
    """Those of a database without chunks."""
    return []


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnswerRing]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("redis"))
    server = EmbeddedRedis(settings)
    server.start()
    yield AnswerRing(connect(settings), AnswerRoom(2**20, 2**20))
    server.stop()


def embed(text: str) -> Vectors:
    """A vector by the text's first letter: one of four, at right angles."""
    return Vectors(np.eye(4, dtype=np.float32)[ord(text[0]) % 4], np.zeros(0, np.uint32), np.zeros(0, np.float32))


def cache_of(ring: AnswerRing, rule: CacheRule | None = RULE, basis: str = "b") -> AnswerCache:
    return AnswerCache(ring, lambda tenant, collection: rule, no_chunks, embed, "f", basis)


def serves(cache: AnswerCache, question: Question) -> bool:
    look = cache.look(question)
    return look is not None and look.hit is not None


@pytest.fixture
def cached(ring: AnswerRing, request: pytest.FixtureRequest) -> tuple[AnswerCache, Question]:
    """A cache that holds an answer, in a collection of the test's own, and the question it is the answer to."""
    asked = replace(ASKED, collection_id=request.node.name)
    cache = cache_of(ring)
    look = cache.look(asked)
    assert isinstance(look, Look) and look.hit is None
    cache.keep(asked, look, ANSWER)
    assert serves(cache, asked)
    return cache, asked


def test_an_answer_serves_until_its_time_is_over(ring: AnswerRing, cached: tuple[AnswerCache, Question]):
    _, asked = cached

    assert serves(cache_of(ring, replace(RULE, ttl_s=60)), asked)
    assert not serves(cache_of(ring, replace(RULE, ttl_s=0)), asked)


@pytest.mark.parametrize(
    "changes",
    [
        {"history": (Turn("user", "Hello"),)},
        {"answer_cache": False},
        {"text": "Who wrote the first program today?"},
        {"text": "Who wrote it? " * 100},
        {"text": " "},
    ],
    ids=["in a conversation", "not wanted", "bound to the day", "too long", "empty"],
)
def test_nothing_is_looked_for_or_kept_for_such_a_question(cached: tuple[AnswerCache, Question], changes: dict):
    cache, asked = cached
    assert cache.look(replace(asked, **changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": "another"},
        {"collection_id": "another"},
        {"text": "How was the first program written?"},
        {"text": "Tell me: who wrote the first program?"},
        {"top_k": 3},
        {"instructions": "Be brief."},
        {"document_ids": frozenset("d")},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_answer_to_another_question_does_not_serve(cached: tuple[AnswerCache, Question], changes: dict):
    cache, asked = cached
    assert not serves(cache, replace(asked, **changes))


@pytest.mark.parametrize(("rule", "basis"), [(replace(RULE, generation=2), "b"), (None, "b"), (RULE, "other settings")])
def test_nor_does_one_from_before_a_change(
    ring: AnswerRing, cached: tuple[AnswerCache, Question], rule: CacheRule | None, basis: str
):
    assert not serves(cache_of(ring, rule, basis), cached[1])


def test_nor_does_one_whose_collection_changes_during_the_look(ring: AnswerRing, cached: tuple[AnswerCache, Question]):
    """Its citations are of the text before, its passages would have the present one."""
    rules = iter([RULE, replace(RULE, generation=2)])
    cache = AnswerCache(ring, lambda tenant, collection: next(rules), no_chunks, embed, "f", "b")
    assert not serves(cache, cached[1])


@pytest.mark.parametrize(
    ("answer", "may_keep"),
    [(replace(ANSWER, text=""), True), (replace(ANSWER, finish_reason="abort"), True), (ANSWER, False)],
    ids=["empty", "not whole", "nothing could be looked for"],
)
def test_such_an_answer_is_not_kept(ring: AnswerRing, request: pytest.FixtureRequest, answer: Answer, may_keep: bool):
    asked, cache = replace(ASKED, collection_id=request.node.name), cache_of(ring)
    look = cache.look(asked)
    assert look is not None
    cache.keep(asked, replace(look, may_keep=may_keep), answer)

    assert not serves(cache, asked)
