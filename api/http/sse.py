"""Server-sent events, each with a name and a JSON value."""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from litestar.response import ServerSentEventMessage

Event = TypeVar("Event")

KEEP_ALIVE = ServerSentEventMessage(data=None, comment="still here", sep="\n")
"""Sent to keep proxies from closing a silent connection."""
KEEP_ALIVE_EVERY_S = 15.0

EVENT_STREAM = "text/event-stream"


class Encoded(ServerSentEventMessage):
    """Events that are already encoded: once, for all streams that send them."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def encode(self) -> bytes:
        return self._text


@dataclass(frozen=True, slots=True)
class EventStream:
    """The events of a stream: the type of each, and some as an example. Streams in OpenAI's format have no types."""

    kinds: Mapping[str, Any]
    example: tuple[ServerSentEventMessage, ...]


def event_message(name: str, value: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=name, data=msgspec.json.encode(value), sep="\n")


async def with_silences(events: AsyncGenerator[Event, None], every_s: float) -> AsyncGenerator[Event | None, None]:
    """The events, and None whenever none has come for `every_s`. Closing it closes them, also while one is awaited."""
    context, step = contextvars.copy_context(), None
    try:
        while True:
            step = step or asyncio.create_task(_next(events), context=context)
            done, _ = await asyncio.wait({step}, timeout=every_s)
            if not done:
                yield None
                continue
            event, step = step.result(), None
            if event is None:
                return
            yield event
    finally:
        if step is None or step.done():
            await events.aclose()
        else:  # ends the events where they wait
            step.cancel()
            await asyncio.wait({step})


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    """The next event, None behind the last."""
    return await anext(events, None)
