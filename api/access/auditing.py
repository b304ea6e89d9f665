"""Changes made by requests, recorded in the audit log before the responses are sent."""

import logging
from http import HTTPStatus

from litestar.handlers import HTTPRouteHandler
from litestar.types import HTTPResponseStartEvent, Message, Scope

from api.access.auth import Requires
from api.access.session import SAFE_METHODS, Connection
from api.http.observe import made_by, named_in
from ragkv.errors import RagKVError
from ragkv.observe.logs import request_id
from ragkv.service.audit.log import Change, record_change
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.threads import Threads

NOTED = "ragkv_change"

log = logging.getLogger(__name__)


class Auditing:
    """A hook before messages are sent. A change is a request that succeeds, by another method than GET, at a handler
    that needs more than the scope read; or one that `note_change` names, also if it fails after that."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = Threads("audit", 1, within_turn=True)

    async def record(self, message: Message, scope: Scope) -> None:
        """A change that cannot be recorded is made already: it is logged instead."""
        if message["type"] != "http.response.start" or (change := _change_of(scope, message)) is None:
            return
        try:
            await self._threads.run(record_change, change, self._database)
        except RagKVError as error:
            log.error("a change was not recorded (%s): %s", error, change)  # noqa: TRY400 - the message says what to do


def note_change(connection: Connection, action: str | None = None, caller: Caller | None = None) -> None:
    """Note that a request has made a change, though its handler or its status alone does not tell. `action`: in place
    of the handler's name; `caller`: who, if not the request's."""
    noted = (action or _name_of(connection.route_handler), caller or connection.user)
    connection.scope[NOTED] = noted  # type: ignore[literal-required]


def _change_of(scope: Scope, message: HTTPResponseStartEvent) -> Change | None:
    handler, method = scope.get("route_handler"), scope.get("method")
    failed = message["status"] >= HTTPStatus.BAD_REQUEST
    noted: tuple[str, Caller] | None = scope.get(NOTED)  # type: ignore[assignment]
    if noted is None and isinstance(handler, HTTPRouteHandler) and not (failed or method in SAFE_METHODS):
        required = {guard.scope for guard in handler.resolve_guards() if isinstance(guard, Requires)}
        if required - {"read"}:
            noted = (_name_of(handler), scope["user"])
    if noted is None:
        return None
    action, caller = noted
    if failed:
        action += f", answered with {message['status']}"
    path_ids, created = named_in(scope), made_by(scope, message)
    return Change(
        tenant_id=caller.tenant_id,
        key_id=caller.key_id,
        action=action,
        route=f"{method} {scope.get('path_template') or ''}",
        client=str((scope.get("client") or ("",))[0]),
        resources=created or path_ids[-1:],
        within=path_ids[0] if path_ids and (created or len(path_ids) > 1) else None,
        request_id=request_id(),
        person=None if caller.person is None else str(caller.person),
    )


def _name_of(handler: HTTPRouteHandler) -> str:
    return handler.summary or handler.handler_name
