"""Delayed refusals: they make a client that is refused repeatedly and retries at once cheap to serve."""

import asyncio
import time
from http import HTTPStatus

from litestar.types import ASGIApp, Message, Receive, Scope, Send

REFUSED = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""Codes that a working client hardly ever gets. 404 and 409 are ordinary answers, and 429 has its own delay."""
AT_ONCE = 20
"""So many refusals in a row are not delayed, however fast they come."""
LONGEST_S = 5.0
THROTTLED_S = 0.5
"""The delay of every 429."""
PRUNE_EVERY_S = 10.0


class Delays:
    """Delays of refusals, by owner: none for a bucket of AT_ONCE, which refills at `per_minute`; beyond it each is a
    little longer than the one before. 0: no delays. In the event loop only."""

    def __init__(self, per_minute: int, prune_every_s: float = PRUNE_EVERY_S) -> None:
        self._each_s = 60 / per_minute if per_minute else 0.0
        self._full_at: dict[str, float] = {}
        self._prune_every_s = prune_every_s
        self._prune_at = time.monotonic() + prune_every_s

    def next(self, owner: str) -> float:
        """Count one refusal. Returns its delay in seconds."""
        moment = time.monotonic()
        if moment >= self._prune_at:
            # Owners whose bucket is full are forgotten. A look at all of them: at intervals, not at every refusal.
            self._full_at = {owner: full_at for owner, full_at in self._full_at.items() if full_at > moment}
            self._prune_at = moment + self._prune_every_s
        full_at = max(self._full_at.get(owner, moment), moment) + self._each_s
        bucket_s = AT_ONCE * self._each_s
        self._full_at[owner] = min(full_at, moment + bucket_s + LONGEST_S)
        return max(0.0, self._full_at[owner] - moment - bucket_s)


class Tarpit:
    """Wraps the app. Refusals count for the admitted tenant, else for the client's address."""

    def __init__(self, app: ASGIApp, per_minute: int) -> None:
        self._app = app
        self._delays = Delays(per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def delayed(message: Message) -> None:
            status, seconds = message.get("status"), 0.0
            if status == HTTPStatus.TOO_MANY_REQUESTS:
                seconds = THROTTLED_S
            elif status in REFUSED:
                caller, (address, *_) = scope.get("user"), scope.get("client") or ("",)
                owner = f"address {address}" if caller is None else f"tenant {caller.tenant_id}"
                seconds = self._delays.next(owner)
            if seconds:
                await asyncio.sleep(seconds)
            await send(message)

        await self._app(scope, receive, delayed)
