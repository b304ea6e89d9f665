"""Events with silences between them: what waits is told of, and ends when the stream is closed."""

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar

import pytest

from api.http.sse import with_silences

pytestmark = pytest.mark.anyio

SEEN: ContextVar[int] = ContextVar("seen", default=0)


class Source:
    """Gives numbers, each after a pause; then fails, if it is told to."""

    def __init__(self, *pauses_s: float, error: Exception | None = None) -> None:
        self._pauses_s = pauses_s
        self._error = error
        self.closed = False
        self.seen: list[int] = []

    async def events(self) -> AsyncGenerator[int, None]:
        try:
            for number, pause_s in enumerate(self._pauses_s, 1):
                await asyncio.sleep(pause_s)
                self.seen.append(SEEN.get())
                SEEN.set(number)
                yield number
            if self._error:
                raise self._error
        finally:
            self.closed = True


async def test_silences_come_while_an_event_is_awaited():
    source = Source(0, 0.25, 0)
    found = [event async for event in with_silences(source.events(), 0.1)]

    assert [event for event in found if event] == [1, 2, 3]
    assert found[0] == 1 and 1 <= found.count(None) <= 2
    assert source.closed


async def test_all_events_are_produced_in_one_context():
    source = Source(0, 0, 0)
    assert [event async for event in with_silences(source.events(), 5)] == [1, 2, 3]

    assert source.seen == [0, 1, 2]
    assert SEEN.get() == 0


async def test_an_error_comes_through():
    source = Source(0, error=ValueError("mine"))
    events = with_silences(source.events(), 5)
    assert await anext(events) == 1
    with pytest.raises(ValueError, match="mine"):
        await anext(events)
    assert source.closed


@pytest.mark.parametrize("pauses_s", [(0, 0), (60,)], ids=["between two events", "while one is awaited"])
async def test_closing_ends_the_events(pauses_s: tuple[float, ...]):
    source = Source(*pauses_s)
    events = with_silences(source.events(), 0.01)
    await anext(events)
    await events.aclose()

    assert source.closed


async def test_cancelling_the_wait_ends_the_events():
    source = Source(60)
    events = with_silences(source.events(), 60)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled() and source.closed
