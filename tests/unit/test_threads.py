"""Pools of threads that take work from its owners in turn."""

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import pytest

from ragkv.threads import OWNER, FairPool, Threads


@pytest.fixture
def pool():
    with FairPool("test", 1) as pool:
        yield pool


def submit(pool: FairPool, owner: str, *work: Any):
    OWNER.set(owner)
    return pool.submit(*work)


def test_who_has_had_least_of_the_threads_is_first(pool: FairPool):
    order, begin = [], threading.Event()
    submit(pool, "gate", begin.wait)
    pieces = [submit(pool, "busy", lambda: order.append("busy") or time.sleep(0.05)) for _ in range(3)]
    pieces += [submit(pool, "quiet", order.append, "quiet") for _ in range(3)]
    begin.set()
    for piece in pieces:
        piece.result(timeout=10)

    assert order == ["busy", *["quiet"] * 3, *["busy"] * 2]


def test_who_was_busy_while_alone_is_not_behind_others_later(pool: FairPool):
    order, begin = [], threading.Event()
    submit(pool, "first", time.sleep, 0.1).result(timeout=10)
    submit(pool, "first", begin.wait)
    pieces = [submit(pool, name, order.append, name) for name in ("other", "first", "other", "first") * 3]
    begin.set()
    for piece in pieces:
        piece.result(timeout=10)

    assert order.index("first") < 8


def test_an_owner_with_much_work_does_not_keep_others_waiting(pool: FairPool):
    order, begin = [], threading.Event()
    submit(pool, "busy", begin.wait)
    pieces = [submit(pool, "busy", order.append, "busy") for _ in range(5)]
    pieces += [submit(pool, name, order.append, name) for name in ("one", "two")]
    begin.set()
    for piece in pieces:
        piece.result(timeout=10)

    assert {"one", "two"} <= set(order[:3])


def test_an_owner_occupies_no_more_threads_than_it_may():
    """The others go to whoever comes next, however much of its work waits; and all of it is done."""
    begin, done = threading.Event(), []
    with FairPool("test", 2, size_each=1) as pool:
        busy = [submit(pool, "busy", lambda: begin.wait(10) and done.append(1)) for _ in range(4)]
        submit(pool, "other", done.append, "other").result(timeout=10)
        assert done == ["other"]
        begin.set()
        for piece in busy:
            piece.result(timeout=10)


def test_errors_and_results_come_back(pool: FairPool):
    assert pool.submit(lambda value, *, more: value + more, 1, more=2).result(timeout=10) == 3
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(timeout=10)


def test_cancelled_work_is_not_done(pool: FairPool):
    done, begin = [], threading.Event()
    pool.submit(begin.wait)
    waiting = pool.submit(done.append, 1)
    assert waiting.cancel()
    begin.set()
    pool.submit(done.append, 2).result(timeout=10)

    assert done == [2]


def test_work_sees_the_context_of_its_caller():
    async def ask() -> str:
        OWNER.set("a tenant")
        return await Threads("test", 1).run(OWNER.get)

    assert asyncio.run(ask()) == "a tenant"


class Body:
    """Megabytes of a request."""


def test_an_error_keeps_nothing_in_memory_once_it_was_dealt_with():
    def refuse(body: Body) -> None:
        raise ValueError("refused")

    async def ask() -> "weakref.ref[Body]":
        body = Body()
        with pytest.raises(ValueError, match="refused"):
            await threads.run(refuse, body)
        return weakref.ref(body)

    threads = Threads("test", 1)
    gc.disable()
    try:
        assert asyncio.run(ask())() is None
    finally:
        gc.enable()
