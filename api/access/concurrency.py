"""Limits of concurrent questions and uploads, a tenant and in all."""

from litestar.handlers import BaseRouteHandler

from api.access.session import Connection
from api.http.forms import BoundedFormRequest
from api.http.holding import hold
from ragkv.access.caller import Caller
from ragkv.access.places import Places
from ragkv.settings import Settings

STATE = "concurrency_limits"
"""Key of the limits in the app's state."""


class ConcurrencyLimits:
    """The concurrent questions of each tenant, the concurrent uploads, and those of each tenant, each with a limit."""

    def __init__(self, settings: Settings) -> None:
        questions, uploads = settings.max_questions, settings.max_uploads
        share = -(-uploads // 2)
        self._questions = Places(
            questions, f"at most {questions} questions of a tenant at once: wait, or raise RAGKV_MAX_QUESTIONS"
        )
        self._uploads = Places(uploads, f"at most {uploads} uploads at once: wait, or raise RAGKV_MAX_UPLOADS")
        self._of_tenant = Places(
            share, f"at most {share} uploads of a tenant at once: wait, or raise RAGKV_MAX_UPLOADS"
        )

    def for_question(self, connection: Connection) -> None:
        """Take a place for the length of the request. Raises Throttled."""
        caller: Caller = connection.user
        hold(connection, self._questions.taken(caller.tenant_id))

    def for_upload(self, connection: Connection) -> None:
        """Take a place for the length of the request. Raises Throttled."""
        caller: Caller = connection.user
        hold(connection, self._of_tenant.taken(caller.tenant_id))
        hold(connection, self._uploads.taken("all"))


async def asking(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: takes a place for the caller's question."""
    _limits_of(connection).for_question(connection)


async def uploading(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: takes a place for the caller's upload, then reads the form, which handlers would do without a bound."""
    _limits_of(connection).for_upload(connection)
    if isinstance(connection, BoundedFormRequest):
        await connection.form()


def _limits_of(connection: Connection) -> ConcurrencyLimits:
    limits: ConcurrencyLimits = connection.app.state[STATE]
    return limits
