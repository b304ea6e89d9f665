"""Admission of requests: the caller of each, checked again during a long response."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from litestar.middleware import AuthenticationResult

from api.access.session import Connection, refuse_forged, session_token
from api.http.turns import digest_of
from ragkv.errors import Forbidden, Throttled, Unauthorised
from ragkv.service.access.gate import Gate
from ragkv.service.access.sessions import Sessions, csrf_token
from ragkv.service.base.caller import Caller
from ragkv.threads import OWNER, Threads
from ragkv.urls import is_loopback

THREADS = 4
"""A pool of its own: requests that wait for slow work do not keep others from being admitted or refused."""
CONFIRM_EVERY_S = 30.0
FORWARDED = ("forwarded", "via", "x-real-ip")
FORWARDED_PREFIX = "x-forwarded-"
REMEMBERED = 10_000
LONGEST_S = 1.0


class Refusals:
    """Keys that were throttled, by their digest, remembered for a moment: a client that retries at once is refused
    without access to the database or Redis. In the event loop only."""

    def __init__(self) -> None:
        self._until: dict[bytes, tuple[float, float, str]] = {}

    def check(self, key: str) -> None:
        """Refuse a key that was refused just now. Raises Throttled, with what is left of its wait."""
        if not self._until:
            return
        moment = time.monotonic()
        until, free_at, refusal = self._until.get(_digest(key), (0.0, 0.0, ""))
        if moment < until:
            raise Throttled(refusal, free_at - moment)

    def note(self, key: str, error: Throttled) -> None:
        if len(self._until) >= REMEMBERED:
            self._until.clear()
        moment, wait_s = time.monotonic(), error.retry_after_s
        self._until[_digest(key)] = (moment + min(wait_s, LONGEST_S), moment + wait_s, str(error))


class Admissions:
    """Authenticates connections. A key in a header takes precedence over the session's cookie."""

    def __init__(
        self, gate: Gate, sessions: Sessions, public_url: str | None, confirm_every_s: float = CONFIRM_EVERY_S
    ) -> None:
        self._gate = gate
        self._public_url = public_url
        self._sessions = sessions
        self._threads = Threads("admission", THREADS, within_turn=True)
        self._refusals = Refusals()
        self.confirm_every_s = confirm_every_s

    async def admit(self, connection: Connection) -> AuthenticationResult:
        """Authenticate: `user` is the Caller, `auth` the CSRF token of its session, if any. Sets OWNER to the tenant.

        Raises Unauthorised, Forbidden or Throttled.
        """
        token, csrf = session_token(connection, self._public_url), None
        key = _key_of(connection, has_session=token is not None)
        if key is None and token and (holder := await self._threads.run(self._sessions.holder, token)):
            csrf = csrf_token(token, holder)
            refuse_forged(connection, csrf)
            caller = await self._threads.run(self._gate.readmit, holder)
        else:
            if key is not None:
                self._refusals.check(key)
            try:
                caller = await self._threads.run(self._gate.admit, key)
            except Throttled as error:
                if key is not None:
                    self._refusals.note(key, error)
                raise
            if caller.key_id is None:
                _refuse_others(connection)
        OWNER.set(caller.tenant_id)
        return AuthenticationResult(user=caller, auth=csrf)

    def confirmation(self, connection: Connection) -> "Confirmation":
        """The confirmation of an admitted request whose response may go on for long."""
        caller: Caller = connection.user
        token = session_token(connection, self._public_url) if connection.auth is not None else None

        def confirm() -> None:
            if token is None:
                self._gate.confirm(caller)
                return
            holder = self._sessions.holder(token)
            if holder is None or self._gate.recall(holder).tenant_id != caller.tenant_id:
                raise Unauthorised("the session has ended: log in again")

        return Confirmation(self._threads, confirm, self.confirm_every_s)


class Confirmation:
    """Checks from time to time that a caller would still be admitted."""

    def __init__(self, threads: Threads, ask: Callable[[], None], every_s: float) -> None:
        self._threads = threads
        self._ask = ask
        self._every_s = every_s
        self._due = time.monotonic() + every_s

    @property
    def due_in_s(self) -> float:
        return max(0.0, self._due - time.monotonic())

    async def renew(self) -> None:
        """Check, if it is due. Raises Unauthorised once the caller would be refused, Unavailable."""
        if not self.due_in_s:
            await self._threads.run(self._ask)
            self._due = time.monotonic() + self._every_s


def _digest(key: str) -> bytes:
    return digest_of(key.encode("utf-8", "surrogatepass"))


def _key_of(connection: Connection, *, has_session: bool) -> str | None:
    """The key in a header, if there is one. Beside a session, credentials of another kind are those of a proxy. Raises
    Unauthorised for such alone."""
    if key := connection.headers.get("x-api-key"):
        return key
    header = connection.headers.get("authorization")
    if header is None:
        return None
    kind, _, key = header.partition(" ")
    if kind.lower() != "bearer":
        if has_session:
            return None
        raise Unauthorised("send the API key as `Authorization: Bearer rk_...`")
    return key.strip()


def _refuse_others(connection: Connection) -> None:
    """Without keys only this machine may send requests. Raises Forbidden for the clients of a proxy that runs on it,
    and for web pages from elsewhere that are open in its browser."""
    names = (name.lower() for name in connection.headers)
    if forwarded := next((name for name in names if name in FORWARDED or name.startswith(FORWARDED_PREFIX)), None):
        raise Forbidden(
            f"this request came through a proxy ({forwarded}), and until there is an API key only this machine may "
            "send requests: create one first, `ragkv keys create --name first --scope admin`"
        )
    urls = [f"//{connection.headers.get('host', '')}", connection.headers.get("origin", "//localhost")]
    try:
        is_local = all(is_loopback(urlsplit(url).hostname or "") for url in urls)
    except ValueError:
        is_local = False
    if not is_local:
        raise Forbidden(
            "until there is an API key, only this machine may send requests, to 127.0.0.1 or localhost: create one "
            "first, `ragkv keys create --name first --scope admin`"
        )
