"""Room for what takes long, shared out between tenants: questions and uploads that are worked on at once."""

from litestar.handlers import BaseRouteHandler

from api.access.session import Connection
from api.http.forms import BoundedFormRequest
from api.http.holding import hold
from ragkv.access.caller import Caller
from ragkv.access.places import Places
from ragkv.settings import Settings

STATE = "rooms"
"""Where the app's state has its Rooms."""


class Rooms:
    """How many questions a tenant may have answered at once, how many files are received at once, and of one tenant."""

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
        """Raises Throttled."""
        caller: Caller = connection.user
        hold(connection, self._questions.taken(caller.tenant_id))

    def for_upload(self, connection: Connection) -> None:
        """Raises Throttled."""
        caller: Caller = connection.user
        hold(connection, self._of_tenant.taken(caller.tenant_id))
        hold(connection, self._uploads.taken("all"))


async def asking(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: there is room for the caller's question."""
    _rooms_of(connection).for_question(connection)


async def uploading(connection: Connection, handler: BaseRouteHandler) -> None:
    """A guard: there is room for the caller's upload. Then its form is read, which the handler would do without bounds."""
    _rooms_of(connection).for_upload(connection)
    if isinstance(connection, BoundedFormRequest):
        await connection.form()


def _rooms_of(connection: Connection) -> Rooms:
    rooms: Rooms = connection.app.state[STATE]
    return rooms
