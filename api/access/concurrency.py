"""Limits on concurrent questions and uploads, per tenant and in total. Questions wait for their turn."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from litestar import Request
from litestar.handlers import BaseRouteHandler

from api.access.session import Connection
from api.http.disconnect import unless_disconnected
from api.http.draining import STOPPING, Draining
from api.http.files import BoundedFormRequest
from api.http.observe import hold
from ragkv.errors import Throttled, Unavailable
from ragkv.observe import metrics
from ragkv.service.base.caller import Caller
from ragkv.settings import Settings
from ragkv.text import plural

STATE = "concurrency_limits"
"""Key of the limits in the app's state."""
LARGE_BYTES = 1024 * 1024

RETRY_AFTER_S = 2.0
MOST_WAITING = 128
"""Questions of a tenant that wait at once: a burst of a hundred. Their bodies, of at most 1 MiB, are in memory."""
LONGEST_WAIT_S = 30.0
"""Proxies give up on a response that has not begun after a minute: the other half of it is for the answer."""


class ConcurrencyLimits:
    """The concurrent questions of each tenant, the concurrent uploads, and those of each tenant, each with a limit."""

    def __init__(self, settings: Settings, draining: Draining) -> None:
        questions, uploads = settings.max_questions, settings.max_uploads
        share = -(-uploads // 2)
        self.questions = QueuedPlaces(
            questions,
            f"at most {plural(questions, 'question')} of a tenant at once: wait, or raise RAGKV_MAX_QUESTIONS",
            draining,
        )
        self._uploads = Places(
            uploads, f"at most {plural(uploads, 'upload')} at once: wait, or raise RAGKV_MAX_UPLOADS"
        )
        self._of_tenant = Places(
            share, f"at most {plural(share, 'upload')} of a tenant at once: wait, or raise RAGKV_MAX_UPLOADS"
        )

    async def question(self, caller: Caller) -> AbstractContextManager[object]:
        """A place for a question once it is its turn, for the length of the context. Raises Throttled, Unavailable."""
        return await self.questions.take(caller.tenant_id)

    @contextmanager
    def upload(self, caller: Caller) -> Iterator[None]:
        """A place for an upload, for the length of the block. Raises Throttled."""
        with self._of_tenant.taken(caller.tenant_id), self._uploads.taken("all"):
            yield


async def asking(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: takes a place for the caller's question once it is its turn, for the length of the request. A client
    that goes away meanwhile leaves the queue."""
    caller, limits = connection.user, limits_of(connection)

    async def take() -> None:
        hold(connection, await limits.question(caller))

    if limits.questions.has_free(caller.tenant_id):
        await take()
        return
    assert isinstance(connection, Request)
    request: Request[Any, Any, Any] = connection
    await request.body()  # the end of a connection is heard behind it
    await unless_disconnected(request, take())


async def uploading(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: takes a place for the caller's upload, for the length of the request, then reads the form, which
    handlers would do without a bound. A body that is no multipart form is refused unread."""
    hold(connection, limits_of(connection).upload(connection.user))
    if isinstance(connection, BoundedFormRequest):
        await connection.form()


async def uploading_large(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: a body that `is_large` takes the place of an upload before it is read, for the length of the request."""
    if is_large(connection):
        hold(connection, limits_of(connection).upload(connection.user))


def is_large(connection: Connection) -> bool:
    """Whether the body may have more than LARGE_BYTES: by its length, unless it is compressed."""
    length = "" if "content-encoding" in connection.headers else connection.headers.get("content-length", "")
    return not length.isdecimal() or int(length) > LARGE_BYTES


def limits_of(connection: Connection) -> ConcurrencyLimits:
    limits: ConcurrencyLimits = connection.app.state[STATE]
    return limits


class Places:
    """At most `limit` things of each owner at once, in this process; 0: no limit. For one thread alone.

    refusal: what an owner without a place left is told.
    """

    def __init__(self, limit: int, refusal: str) -> None:
        self._limit = limit
        self._refusal = refusal
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, owner: str) -> Iterator[None]:
        """One of the owner's places, for as long as the block lasts. Raises Throttled if there is none."""
        if self._limit and self._taken[owner] >= self._limit:
            raise Throttled(self._refusal, RETRY_AFTER_S)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


class QueuedPlaces:
    """At most `limit` things of each owner at once, in this process; 0: no limit. Beyond it an owner's next ones wait,
    first come, first served: MOST_WAITING at most, each for LONGEST_WAIT_S. For one event loop alone.

    refusal: what those are told that wait no longer.
    """

    def __init__(self, limit: int, refusal: str, draining: Draining) -> None:
        self._limit = limit
        self._refusal = refusal
        self._draining = draining
        self._taken = Counter[str]()
        self._waiting = defaultdict[str, deque[asyncio.Future[None]]](deque)

    def has_free(self, owner: str) -> bool:
        """Whether the owner's next one need not wait. Those that wait are handed their places: none is free then."""
        return not self._limit or self._taken[owner] < self._limit

    async def take(self, owner: str) -> AbstractContextManager[object]:
        """Take one of the owner's places once it is its turn, until the context ends; to be entered at once.

        Raises Throttled where too many wait, or for too long, and Unavailable once the service shuts down.
        """
        if self.has_free(owner):
            self._taken[owner] += 1
        else:
            await self._turn(owner)
        place = ExitStack()
        place.callback(self._release, owner)
        return place

    async def _turn(self, owner: str) -> None:
        """Wait until a place is handed over."""
        queue = self._waiting[owner]
        if len(queue) >= MOST_WAITING:
            metrics.question_refused("full")
            raise Throttled(f"{self._refusal}; {MOST_WAITING} more are waiting", RETRY_AFTER_S)
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        stopping = asyncio.ensure_future(self._draining.wait_started(LONGEST_WAIT_S))
        metrics.questions_waiting.inc()
        try:
            await asyncio.wait({turn, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if turn.done():  # the place was handed over just then
                self._release(owner)
            raise
        finally:
            metrics.questions_waiting.dec()
            stopping.cancel()
            if not turn.done():
                queue.remove(turn)
            if not self._waiting[owner]:
                del self._waiting[owner]
        if turn.done():
            return
        if stopping.result():
            raise Unavailable(STOPPING)
        metrics.question_refused("late")
        raise Throttled(f"{self._refusal}; none ended within {LONGEST_WAIT_S:.0f} s", RETRY_AFTER_S)

    def _release(self, owner: str) -> None:
        """Hand a place over to who has waited longest; with nobody waiting it is free."""
        if self._waiting.get(owner):
            self._waiting[owner].popleft().set_result(None)
        else:
            self._taken -= Counter((owner,))  # drops zeros
