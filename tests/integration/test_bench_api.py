"""The measurement of the service from outside, against a service with an engine that echoes."""

import asyncio
import io

import httpx
import pytest

from bench.api import client_of, measure_asks
from bench.serving.command import Asking
from bench.serving.load import Plan
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.errors import Rejected, Unavailable
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
from tests.support.over_http import ADA, serving

QUESTION = "Who wrote the first program?"


@pytest.fixture
def url(parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis):
    """A service with a document."""
    ingest_document(
        store_document(parts.default_collection, "ada.md", io.BytesIO(ADA), parts.intake).document_id, ingest
    )
    with serving(parts) as client:
        yield str(client.base_url)


def test_what_the_service_adds_is_the_rest_of_the_time_to_the_first_delta(url: str):
    steps = []

    async def measure():
        async with client_of(url, None, 1) as client:
            return await measure_asks(client, [QUESTION], 4, {"max_tokens": 2}, lambda: steps.append(1))

    seen = asyncio.run(measure())

    assert seen.asks == len(steps) == 4
    assert 0 < seen.overhead_p50 <= seen.overhead_p95
    assert seen.first_delta_p50 > seen.retrieve_p50 > 0
    assert 0 <= seen.plan_p50 < seen.overhead_p50


def test_two_hundred_clients_at_once_see_no_error(url: str):
    async def ask() -> set[int]:
        async with client_of(url, None, 200) as client:
            return {
                reply.status_code for reply in await asyncio.gather(*(client.get("/v1/documents") for _ in range(400)))
            }

    assert asyncio.run(ask()) == {200}


def test_no_answer_that_is_measured_comes_from_the_answer_cache(url: str):
    async def measure():
        async with client_of(url, None, 1) as client:
            await client.patch("/v1/collections/default", json={"answer_cache": {"enabled": True}})
            await measure_asks(client, [QUESTION], 4, {"max_tokens": 2}, lambda: None)
            return (await client.get("/v1/collections/default")).json()["answer_cache"]

    cache = asyncio.run(measure())

    assert (cache["enabled"], cache["hits"]) == (True, 0)


def test_a_service_that_cannot_answer_is_quoted_and_one_that_is_not_there_named(url: str, free_port):
    async def measure(url, **options):
        async with client_of(url, None, 1) as client:
            await measure_asks(client, [QUESTION], 1, options, lambda: None)

    with pytest.raises(Rejected, match="404"):
        asyncio.run(measure(url, collection="nowhere"))
    with pytest.raises(Unavailable, match="no service answers"):
        asyncio.run(measure(str(httpx.URL(url).copy_with(port=free_port()))))


@pytest.mark.parametrize("words", [["Ada", " wrote", " it."], [""]], ids=["text", "no text"])
def test_clients_of_a_running_service_are_answered_in_each_mode(url: str, parts: Parts, words: list[str]):
    parts.engine.words = words
    plan = Plan(clients=3, rate=None, context=64, answer=3, questions=6, rounds=2, modes=("stitched", "full"))

    async def measure():
        async with client_of(url, None, 3) as client:
            return await Asking(client, [QUESTION, "Who was it?"]).measure(plan, lambda mode: None)

    rows = asyncio.run(measure())
    assert [(row.mode, row.questions, row.errors) for row in rows] == [("stitched", 12, 0), ("full", 12, 0)]
    assert all(row.context_tokens > 0 < row.ttft_p50_s for row in rows)
