"""Work beside the service ends with it."""

import asyncio

import pytest

from api import background
from api.background import beside

pytestmark = pytest.mark.anyio


async def test_work_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background, "AGAIN_S", 0.01)
    lost = 0

    async def losing() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1
                if lost == 2:
                    raise

    async with asyncio.timeout(5), beside(losing()):
        await asyncio.sleep(0)

    assert lost == 2


async def test_an_error_of_the_work_is_raised_at_the_end():
    async def failing() -> None:
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        async with beside(failing()):
            await asyncio.sleep(0)
