"""Limits on concurrent questions and uploads, per tenant and in total."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from litestar.handlers import BaseRouteHandler

from api.access.session import Connection
from api.http.forms import BoundedFormRequest
from api.http.observe import hold
from ragkv.errors import Throttled
from ragkv.service.base.caller import Caller
from ragkv.settings import Settings
from ragkv.text import plural

STATE = "concurrency_limits"
"""Key of the limits in the app's state."""
LARGE_BYTES = 1024 * 1024

RETRY_AFTER_S = 2.0


class ConcurrencyLimits:
    """The concurrent questions of each tenant, the concurrent uploads, and those of each tenant, each with a limit."""

    def __init__(self, settings: Settings) -> None:
        questions, uploads = settings.max_questions, settings.max_uploads
        share = -(-uploads // 2)
        self._questions = Places(
            questions,
            f"at most {plural(questions, 'question')} of a tenant at once: wait, or raise RAGKV_MAX_QUESTIONS",
        )
        self._uploads = Places(
            uploads, f"at most {plural(uploads, 'upload')} at once: wait, or raise RAGKV_MAX_UPLOADS"
        )
        self._of_tenant = Places(
            share, f"at most {plural(share, 'upload')} of a tenant at once: wait, or raise RAGKV_MAX_UPLOADS"
        )

    @contextmanager
    def question(self, caller: Caller) -> Iterator[None]:
        """A place for a question, for the length of the block. Raises Throttled."""
        with self._questions.taken(caller.tenant_id):
            yield

    @contextmanager
    def upload(self, caller: Caller) -> Iterator[None]:
        """A place for an upload, for the length of the block. Raises Throttled."""
        with self._of_tenant.taken(caller.tenant_id), self._uploads.taken("all"):
            yield


async def asking(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: takes a place for the caller's question, for the length of the request."""
    hold(connection, limits_of(connection).question(connection.user))


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
