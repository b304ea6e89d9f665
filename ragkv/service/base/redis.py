"""Redis clients made from the settings; Redis errors become Unavailable."""

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import redis
from redis.exceptions import RedisError

from ragkv.errors import Unavailable
from ragkv.settings import Settings
from ragkv.threads import CircuitBreaker

log = logging.getLogger(__name__)

SILENCE_S = 5.0
"""How long a connection waits for the server, which answers everything within milliseconds: one that hangs keeps
requests waiting so long, and perhaps twice."""
MAX_SOCKET_PATH = 100
"""Bytes. The kernel takes 107."""
AWAY = "Redis does not answer: try again, or see the service's log"


class Redis(redis.Redis):
    """A client. Its breaker is for whoever uses it: see `reporting`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.breaker = CircuitBreaker(SILENCE_S, AWAY)


def redis_url(settings: Settings) -> str:
    """The URL of the configured server, or of the embedded one's socket (unix://PATH)."""
    return settings.redis_url or f"unix://{socket_path(settings)}"


def socket_path(settings: Settings) -> Path:
    """The embedded server's socket. Where the data folder's path is too long for one, in the temporary folder."""
    path = settings.redis_socket
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"ragkv-{os.getuid()}-{digest}" / "redis.sock"


def connect(settings: Settings) -> Redis:
    """A client. Connects when first used."""
    limits = {"socket_connect_timeout": SILENCE_S, "socket_timeout": SILENCE_S}
    client: Any = Redis.from_url(redis_url(settings), **limits)  # typed as a client of the library's own class
    return cast("Redis", client)


@contextlib.contextmanager
def reporting(client: Redis) -> Iterator[None]:
    """Translate errors of Redis. Raises Unavailable in place of an error of Redis inside, and at once while
    it hangs."""
    try:
        with client.breaker.guarding():
            yield
    except RedisError as error:
        log.warning("Redis does not answer: %s", error)
        raise Unavailable(AWAY) from error


def is_there(client: Redis, settings: Settings) -> bool:
    """Whether a server is configured, or the embedded one of a running service answers."""
    if settings.redis_url is None:
        try:
            client.ping()
        except RedisError:
            return False
    return True


def ping(client: Redis) -> None:
    """Check the connection. Raises Unavailable unless Redis answers."""
    with reporting(client):
        client.ping()


def check_takes(client: Redis) -> None:
    """Check that Redis can be written to. Raises Unavailable unless Redis takes new data: one that is full, or cannot
    write its log, does not."""
    with reporting(client):
        client.set("ragkv:takes", b"", xx=True)  # only if it were there: nothing is written
