"""Server-sent events: a name and a JSON value each."""

import msgspec
from litestar.response import ServerSentEventMessage

KEEP_ALIVE = ServerSentEventMessage(data=None, comment="still here", sep="\n")
"""For proxies that close what is silent."""


def event(name: str, value: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=name, data=msgspec.json.encode(value), sep="\n")
