"""Loading of what takes seconds, for the event loop: in a thread, once for all who wait for it."""

import asyncio
import logging
from collections.abc import Callable

from ragkv.errors import RagKVError, Unavailable
from ragkv.threads import Threads

log = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""Proxies wait twice as long for a response."""
LOADING = "the models and the index are still being loaded: try again in a few seconds"
FAILED = "the models and the index could not be loaded: see the service's log"


class Loading:
    """Runs `load` until it has succeeded once, one attempt at a time: each is begun by a caller who needs the result,
    and shared by all who come meanwhile. In one event loop at a time."""

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._threads = Threads("loading", 1)
        self._attempt: asyncio.Future[None] | None = None
        self._problem: Unavailable | None = None
        self._is_finished = False

    async def finished(self, patience_s: float | None = PATIENCE_S) -> None:
        """Return once everything is loaded. None waits for the end of an attempt, however long that takes.

        Raises Unavailable while it is still being loaded, and after an attempt that failed, for whatever reason: a
        setting is no fault of the request's. The log has the reason.
        """
        if self._is_finished:
            return
        done, _ = await asyncio.wait({self._begun()}, timeout=patience_s)
        if not done:
            raise Unavailable(LOADING)
        if self._problem is not None:
            raise self._problem

    def trouble(self) -> str | None:
        """The reason why not everything is loaded; None once it is. After an attempt that failed another is begun: no
        question may come to begin it."""
        if self._problem is not None:
            self._begun()
            return FAILED
        return None if self._is_finished else LOADING

    def _begun(self) -> "asyncio.Future[None]":
        """The running attempt, or a new one."""
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.ensure_future(self._threads.run(self._try))
        return self._attempt

    def _try(self) -> None:
        try:
            self._load()
        except RagKVError as error:
            log.error("the models and the index are not loaded: %s", error)  # noqa: TRY400 - the message says what to do, a trace does not
            self._problem = error if isinstance(error, Unavailable) else Unavailable(FAILED)
        except Exception:
            log.exception("the models and the index are not loaded")
            self._problem = Unavailable(FAILED)
        else:
            self._problem, self._is_finished = None, True
