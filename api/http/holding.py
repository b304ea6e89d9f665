"""Places that a request holds until its answer has ended, however it ends."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from litestar.connection import ASGIConnection

HELD = "ragkv_held"
"""Where a request's scope has its ExitStack; whoever wraps the app closes it."""


def hold(connection: ASGIConnection[Any, Any, Any, Any], place: AbstractContextManager[None]) -> None:
    """Enter the context now and leave it at the end of the request."""
    held: ExitStack = connection.scope[HELD]  # type: ignore[literal-required]
    held.enter_context(place)
