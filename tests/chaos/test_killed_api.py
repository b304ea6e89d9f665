"""The API killed in the middle of answers: their clients notice, come back, and get them."""

import io
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.models import public_name
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.chaos.world import World
from tests.support.over_http import ADA

QUESTION = "Who wrote the first program?"
WORDS = ("Ada", "Lovelace", "wrote", "it.")
ENDS = {"/v1/ask": "event: done", "/v1/chat/completions": "data: [DONE]", "/v1/responses": "response.completed"}
"""How a whole stream ends."""


@pytest.fixture
def world(settings: Settings, parts: Parts, ingest: IngestParts) -> Iterator[World]:
    """An API over one document."""
    document_id = store_document(parts.default_collection, "ada.md", io.BytesIO(ADA), parts.intake).document_id
    ingest_document(document_id, ingest)
    world = World(settings, parts, 0, None, None)
    world.redis.start()
    world.launch("run_slow_api")
    world.wait_until(world.is_up)
    yield world
    world.close()


def test_clients_of_an_api_that_is_killed_come_back_and_get_their_answers(world: World):
    with ExitStack() as streams:
        pieces = {path: streams.enter_context(asking(world, path)).iter_text() for path in ENDS}
        for text in pieces.values():
            wait_for_first_word(text)
        world.kill("run_slow_api")
        for text in pieces.values():
            with pytest.raises(httpx.HTTPError):
                list(text)

    world.launch("run_slow_api")
    world.wait_until(world.is_up)
    with ExitStack() as streams:
        again = {path: streams.enter_context(asking(world, path)) for path in ENDS}
        for path, response in again.items():
            text = response.read().decode()
            assert (response.status_code, ENDS[path] in text) == (200, True), text
            assert [word for word in WORDS if word not in text] == []


def asking(world: World, path: str) -> Any:
    bodies = {
        "/v1/ask": {"question": QUESTION},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": QUESTION}]},
        "/v1/responses": {"input": QUESTION},
    }
    model = {} if path == "/v1/ask" else {"model": public_name(world.settings)}
    return world.client.stream("POST", path, json=bodies[path] | model | {"stream": True})


def wait_for_first_word(pieces: Iterator[str]) -> None:
    text = ""
    while WORDS[0] not in text:
        text += next(pieces)
