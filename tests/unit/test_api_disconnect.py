"""Work ends when the client goes."""

import asyncio
from typing import Any, cast

import pytest
from litestar import Request
from litestar.exceptions import ClientException

from api.http.disconnect import unless_disconnected

pytestmark = pytest.mark.anyio


class Connection:
    """What of a request is looked at: its receiving end."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.closed.wait()
        return {"type": "http.disconnect"}

    @property
    def request(self) -> Request[Any, Any, Any]:
        return cast("Request[Any, Any, Any]", self)


async def test_a_result_comes_through():
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await unless_disconnected(Connection().request, work()) == 7


async def test_an_error_comes_through():
    async def work() -> int:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await unless_disconnected(Connection().request, work())


async def test_closing_the_request_cancels_the_work():
    connection, cancelled = Connection(), asyncio.Event()

    async def work() -> None:
        connection.closed.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(ClientException):
        await unless_disconnected(connection.request, work())
    assert cancelled.is_set()
