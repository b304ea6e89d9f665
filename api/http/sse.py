"""Server-sent events: a name and a JSON value each."""

import msgspec
from litestar.response import ServerSentEventMessage

KEEP_ALIVE = ServerSentEventMessage(data=None, comment="still here", sep="\n")
"""For proxies that close what is silent."""


class Encoded(ServerSentEventMessage):
    """Events that were encoded before: once, for however many streams."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def encode(self) -> bytes:
        return self._text


def event_message(name: str, value: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=name, data=msgspec.json.encode(value), sep="\n")
