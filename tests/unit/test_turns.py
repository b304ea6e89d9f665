"""Who has the event loop's attention."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from api.http.turns import LONGEST_S, Turns

T = TypeVar("T")
Handler = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits, and at once: no machine is too slow for it."""

    def __init__(self) -> None:
        self._now = 0.0
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        look = selector.select

        def select(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            assert timeout is not None, "nothing will ever happen"
            self._now += timeout
            return look(0)

        selector.select = select  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now


def ahead(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=Ahead) as runner:
        return runner.run(work)


def request(key: str = "", client: str = "10.0.0.1", path: str = "/v1/documents") -> dict[str, Any]:
    headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
    return {"type": "http", "path": path, "headers": headers, "client": (client, 1)}


async def nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


async def ignored(message: dict[str, Any]) -> None:
    """An answer nobody reads."""


async def ask(turns: Turns, scope: dict[str, Any], receive: Any = nothing) -> None:
    await turns(scope, receive, ignored)  # type: ignore[arg-type]


def turns_of(handler: Handler, at_once: int = 1) -> Turns:
    return Turns(handler, at_once)  # type: ignore[arg-type]


def test_known_tenants_take_turns_with_whoever_floods_from_an_address():
    order: list[str] = []

    async def handle(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["headers"]:
            scope["user"] = SimpleNamespace(tenant_id="honest", key_id="1")
        await asyncio.sleep(0.001)
        order.append("honest" if scope["headers"] else "flood")
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run() -> None:
        turns = turns_of(handle)
        await ask(turns, request("honest"))
        flood = [asyncio.create_task(ask(turns, request())) for _ in range(50)]
        await asyncio.sleep(0)
        await ask(turns, request("honest"))
        order.append("answered")
        await asyncio.gather(*flood)

    asyncio.run(run())
    assert order.index("answered") < 6


def test_no_more_than_a_few_at_once():
    running, most = 0, 0

    async def handle(scope: dict[str, Any], receive: Any, send: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run() -> None:
        turns = turns_of(handle, at_once=3)
        await asyncio.gather(*(ask(turns, request(client=str(n))) for n in range(20)))

    asyncio.run(run())
    assert most == 3


def test_a_request_that_takes_long_keeps_nobody_waiting():
    async def handle(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await asyncio.sleep(5 if scope["client"][0] == "slow" else 0)

    async def run() -> float:
        turns = turns_of(handle)
        slow = asyncio.create_task(ask(turns, request(client="slow")))
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        await ask(turns, request(client="quick"))
        waited = asyncio.get_running_loop().time() - began
        slow.cancel()
        return waited

    assert ahead(run()) == pytest.approx(LONGEST_S)


def test_nor_does_a_body_that_does_not_come():
    async def handle(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()

    async def never() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    async def run() -> None:
        turns = turns_of(handle)
        half = [asyncio.create_task(ask(turns, request(), never)) for _ in range(10)]
        await asyncio.sleep(0)
        async with asyncio.timeout(LONGEST_S / 2):
            await ask(turns, request())
        for task in half:
            task.cancel()

    ahead(run())


def test_requests_that_are_given_up_leave_no_turn_behind():
    async def handle(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await asyncio.sleep(0.001)

    async def run() -> None:
        turns = turns_of(handle)
        given_up = [asyncio.create_task(ask(turns, request())) for _ in range(20)]
        await asyncio.sleep(0.002)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        async with asyncio.timeout(5):
            await asyncio.gather(*(ask(turns, request()) for _ in range(5)))

    asyncio.run(run())


def test_probes_wait_for_nobody():
    async def handle(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await asyncio.sleep(0 if scope["path"] == "/healthz" else 5)

    async def run() -> None:
        turns = turns_of(handle)
        slow = asyncio.create_task(ask(turns, request()))
        await asyncio.sleep(0)
        async with asyncio.timeout(LONGEST_S / 2):
            await ask(turns, request(path="/healthz"))
        slow.cancel()

    ahead(run())
