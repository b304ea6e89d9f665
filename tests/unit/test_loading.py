"""Loading beside the event loop: one attempt at a time, shared, and begun again after a failure."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from ragkv.errors import Rejected, Unavailable
from ragkv.service.base.loading import FAILED, LOADING, Loading

pytestmark = pytest.mark.anyio


class Load:
    """Takes until it is released; then raises the errors, one an attempt."""

    def __init__(self, *errors: Exception) -> None:
        self.release = threading.Event()
        self.attempts = 0
        self._errors = list(errors)

    def __call__(self) -> None:
        self.attempts += 1
        self.release.wait(20)
        if self._errors:
            raise self._errors.pop(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - threads tell of nothing
            await asyncio.sleep(0.01)


async def test_all_who_come_meanwhile_share_one_attempt_and_the_loop_goes_on():
    load = Load()
    loading = Loading(load)
    waiting = [asyncio.create_task(loading.finished()) for _ in range(3)]
    await until(lambda: load.attempts == 1)
    with pytest.raises(Unavailable, match="still being loaded"):
        await loading.finished(patience_s=0.01)
    waiting.pop().cancel()

    load.release.set()
    await asyncio.gather(*waiting)
    await loading.finished()

    assert load.attempts == 1


async def test_a_setting_that_cannot_be_loaded_is_no_fault_of_the_request(caplog: pytest.LogCaptureFixture):
    load = Load(Rejected("RAGKV_RERANKER=no/such: the download failed"), ValueError("damaged"))
    load.release.set()
    loading = Loading(load)
    for reason in ("RAGKV_RERANKER=no/such", "ValueError: damaged"):
        with pytest.raises(Unavailable, match="see the service's log") as refused:
            await loading.finished()
        assert "no/such" not in str(refused.value)
        assert reason in caplog.text

    await loading.finished()

    assert load.attempts == 3


async def test_what_is_away_is_named():
    load = Load(Unavailable("Qdrant does not answer"))
    load.release.set()
    with pytest.raises(Unavailable, match="Qdrant does not answer"):
        await Loading(load).finished()


async def test_whoever_asks_after_a_failure_begins_another_attempt():
    load = Load(ValueError("damaged"))
    loading = Loading(load)
    assert loading.trouble() == LOADING and load.attempts == 0
    load.release.set()
    with pytest.raises(Unavailable):
        await loading.finished()

    load.release.clear()
    assert loading.trouble() == FAILED
    await until(lambda: load.attempts == 2)
    assert loading.trouble() == FAILED and load.attempts == 2
    load.release.set()
    await until(lambda: loading.trouble() is None)

    assert load.attempts == 2
