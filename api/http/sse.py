"""Server-sent events, each with a name and a JSON value."""

import msgspec
from litestar.response import ServerSentEventMessage

KEEP_ALIVE = ServerSentEventMessage(data=None, comment="still here", sep="\n")
"""Sent to keep proxies from closing a silent connection."""


class Encoded(ServerSentEventMessage):
    """Events that are already encoded: once, for all streams that send them."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def encode(self) -> bytes:
        return self._text


def event_message(name: str, value: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=name, data=msgspec.json.encode(value), sep="\n")
