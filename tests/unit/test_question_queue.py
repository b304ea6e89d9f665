"""Questions beyond a tenant's limit wait for their turn."""

import asyncio
from contextlib import AbstractContextManager, ExitStack

import pytest

from api.access import concurrency
from api.access.concurrency import MOST_WAITING, QueuedPlaces
from api.http.draining import Draining
from ragkv.errors import Throttled, Unavailable

pytestmark = pytest.mark.anyio

Taking = asyncio.Future[AbstractContextManager[None]]


@pytest.fixture
def draining() -> Draining:
    return Draining()


@pytest.fixture
def places(draining: Draining) -> QueuedPlaces:
    return QueuedPlaces(1, "at most 1", draining)


async def start(places: QueuedPlaces, owner: str = "a") -> Taking:
    """A question that asks for a place, and has come as far as it can."""
    taking = asyncio.ensure_future(places.take(owner))
    await settle()
    return taking


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_places_are_handed_over_first_come_first_served(places: QueuedPlaces):
    place = await places.take("a")
    waiting = [await start(places) for _ in range(3)]
    for i, taking in enumerate(waiting):
        assert [other.done() for other in waiting] == [True] * i + [False] * (3 - i)
        with place:
            pass
        newcomer = await start(places)
        assert taking.done()
        assert not newcomer.done(), "a newcomer does not overtake"
        newcomer.cancel()
        await settle()
        place = taking.result()
    with place:
        pass
    assert places.has_free("a")


async def test_tenants_do_not_wait_for_each_other(places: QueuedPlaces):
    with await places.take("a"):
        waiting = await start(places, "a")
        with await places.take("b"):
            assert not waiting.done()
        waiting.cancel()


async def test_so_many_wait_and_no_more(places: QueuedPlaces):
    with await places.take("a"):
        waiting = [await start(places) for _ in range(MOST_WAITING)]
        with pytest.raises(Throttled, match=f"at most 1; {MOST_WAITING} more are waiting"):
            await places.take("a")
        waiting[5].cancel()
        await settle()
        latest = await start(places)
        assert not latest.done(), "who leaves makes room"
        for taking in (*waiting, latest):
            taking.cancel()
        await settle()


async def test_nobody_waits_for_long(places: QueuedPlaces, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(concurrency, "LONGEST_WAIT_S", 0.01)
    with await places.take("a"):
        with pytest.raises(Throttled, match="at most 1; none ended within 0 s") as refusal:
            await places.take("a")
        assert refusal.value.retry_after_s > 0
    assert places.has_free("a")


async def test_who_leaves_the_queue_takes_no_place(places: QueuedPlaces, subtests: pytest.Subtests):
    for just_then in (False, True):
        with subtests.test(just_then=just_then), ExitStack() as held:
            held.enter_context(await places.take("a"))
            leaving, staying = await start(places), await start(places)
            if just_then:
                held.close()
            leaving.cancel()
            held.close()
            await settle()
            with staying.result():
                assert not places.has_free("a")
        assert places.has_free("a")


async def test_a_shutdown_wakes_those_that_wait(places: QueuedPlaces, draining: Draining):
    with await places.take("a"):
        waiting = [await start(places) for _ in range(2)]
        draining.start()
        for taking in waiting:
            with pytest.raises(Unavailable, match="shutting down"):
                await taking
    assert places.has_free("a")


async def test_without_a_limit_nobody_waits(draining: Draining):
    places = QueuedPlaces(0, "", draining)
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(await places.take("a"))
