"""Questions that are meant to stop the service: refused at once, and never worked on in the event loop."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from api.app import create_app
from ragkv.answer.question import INSTRUCTIONS_CHARACTERS, QUESTION_CHARACTERS
from ragkv.service.parts import Parts
from ragkv.tokenizer import Tokenizer
from tests.support.over_http import HERE, Client, assert_problem

LONG = "x" * (QUESTION_CHARACTERS + 1)
HUGE = "Who wrote it? " * 40_000
MODEL = "SmolLM2-135M-Instruct"


def chat(question: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": question}], **fields}


OPENAI = {
    "/v1/chat/completions": chat,
    "/v1/responses": lambda question: {"model": MODEL, "input": question},
    "/v1/vector_stores/default/search": lambda question: {"query": question},
}


@pytest.mark.parametrize("path", ["/v1/ask", "/v1/search"])
def test_a_question_above_the_limit_is_refused_with_what_to_do(client: Client, path: str):
    assert_problem(client.post(path, json={"question": LONG, "collection": "none"}), 413, "shorten it")
    assert_problem(client.post(path, json={"question": LONG[1:], "collection": "none"}), 404)


def test_openai_clients_are_refused_likewise(client: Client, subtests: pytest.Subtests):
    for path, body_of in OPENAI.items():
        with subtests.test(path):
            refused = client.post(path, json=body_of(LONG))

            assert refused.status_code in (400, 413)
            assert str(QUESTION_CHARACTERS) in refused.json()["error"]["message"].replace(",", "")


def test_instructions_have_a_limit(client: Client):
    told = {"role": "system", "content": "x" * (INSTRUCTIONS_CHARACTERS + 1)}
    body = chat("Who?")
    refused = client.post("/v1/chat/completions", json=body | {"messages": [told, *body["messages"]]})

    assert refused.status_code == 413
    assert "instructions" in refused.json()["error"]["message"]


class Watched(Tokenizer):
    """A tokenizer that notes whether it was used in an event loop's thread."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer._tokenizer)
        self.in_loop: list[bool] = []

    def encode(self, text: str) -> list[int]:
        self.in_loop.append(_runs_a_loop())
        return super().encode(text)


def _runs_a_loop() -> bool:
    with suppress(RuntimeError):
        return bool(asyncio.get_running_loop())
    return False


@pytest.fixture
def watched(parts: Parts) -> Watched:
    parts.tokenizer = Watched(parts.tokenizer)
    return parts.tokenizer


def test_no_question_is_tokenised_in_the_event_loop(watched: Watched, client: Client, answerable: str):
    assert client.post("/v1/ask", json={"question": "Who wrote the first program?"}).status_code == 200

    assert watched.in_loop and not any(watched.in_loop)


def test_huge_questions_do_not_hold_the_event_loop(parts: Parts, client: Client):
    """Measured in the processor time of the loop's thread, against that of tokenising one of them."""
    work_s = min(_seconds(lambda: parts.tokenizer.encode(HUGE)) for _ in range(2))

    async def measure() -> float:
        transport = httpx.ASGITransport(create_app(parts))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as asking:
            longest = asyncio.create_task(_longest_turn())
            answers = [await asking.post("/v1/ask", json={"question": HUGE}) for _ in range(3)]
            assert {answer.status_code for answer in answers} == {413}
            longest.cancel()
            return await longest

    assert asyncio.run(measure()) < work_s / 2


def _seconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


async def _longest_turn() -> float:
    """Processor seconds that the event loop's thread spent, at worst, before it came back to a task that sleeps, until
    that is cancelled."""
    longest = 0.0
    with suppress(asyncio.CancelledError):
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.005)
            longest = max(longest, time.thread_time() - began)
    return longest
