"""The service while the models and the index are not loaded."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient

from api.app import create_app
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.loading import FAILED, LOADING
from ragkv.service.parts import Parts
from tests.support.over_http import HERE, wait_until

SEARCHES = [("/v1/search", {"question": "Who?"}), ("/v1/vector_stores/default/search", {"query": "Who?"})]
QUESTIONS = [
    ("/v1/ask", {"question": "Who?"}),
    ("/v1/chat/completions", {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Who?"}]}),
    ("/v1/responses", {"model": "SmolLM2-135M-Instruct", "input": "Who?"}),
]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and says nothing, until it is closed."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


def test_a_question_that_waits_for_the_index_holds_nobody_up(
    parts: Parts, redis_server: EmbeddedRedis, silent: socket.socket
):
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    parts.settings = msgspec.structs.replace(parts.settings, qdrant_url=url)
    with TestClient(create_app(parts), base_url=HERE) as client:
        asking = [
            threading.Thread(target=client.post, args=(path,), kwargs={"json": body}, daemon=True)
            for path, body in SEARCHES + QUESTIONS
        ]
        for one in asking:
            one.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert client.get("/healthz").status_code == 200
        assert time.monotonic() - began < 5
        assert client.get("/readyz").json()["service"] == LOADING, "another process answers sooner"
        assert all(one.is_alive() for one in asking)
        silent.close()
        for one in asking:
            one.join()


@pytest.mark.parametrize(("path", "body"), SEARCHES + QUESTIONS)
def test_what_cannot_be_loaded_makes_the_service_not_ready_and_is_no_fault_of_a_question(
    parts: Parts, redis_server: EmbeddedRedis, path: str, body: dict[str, Any]
):
    good = parts.settings
    parts.settings = msgspec.structs.replace(good, reranker="/no/such/folder")
    with TestClient(create_app(parts), base_url=HERE) as client:
        wait_until(lambda: client.get("/readyz").json()["service"] == FAILED)
        refused = client.post(path, json=body)
        assert client.get("/readyz").status_code == 503
        parts.settings = good
        wait_until(lambda: client.get("/readyz").status_code == 200)

    assert refused.status_code == 503 and refused.headers["Retry-After"]
    assert "/no/such" not in refused.text and FAILED in refused.text
