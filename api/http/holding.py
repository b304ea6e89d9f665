"""Contexts that a request holds until its response has ended, for whatever reason."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from litestar.connection import ASGIConnection

HELD = "ragkv_held"
"""Key of the ExitStack in a request's scope. `Observing` makes and closes it."""


def hold(connection: ASGIConnection[Any, Any, Any, Any], place: AbstractContextManager[None]) -> None:
    """Enter a context now and leave it at the end of the request."""
    held: ExitStack = connection.scope[HELD]  # type: ignore[literal-required]
    held.enter_context(place)
