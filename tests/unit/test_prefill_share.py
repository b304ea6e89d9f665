"""Prefills beside answers take half of the engine's time, and all of it without answers."""

import pytest

from ragkv.connector import prefill_share
from ragkv.connector.prefill_share import BESIDE_ANSWERS, IDLE_TOKENS, PrefillShare


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(prefill_share.time, "monotonic", clock.monotonic)
    return clock


def test_an_engine_without_answers_is_filled_with_prefills(clock: Clock):
    share = PrefillShare()
    assert [share.of_step(is_idle=True) for _ in range(3)] == [IDLE_TOKENS] * 3


def test_answers_have_as_much_time_as_the_step_that_prefilled_took(clock: Clock):
    share = PrefillShare()
    rooms = []
    for took_s in (0.0, 0.1, 0.03, 0.03, 0.03, 0.03, 0.1):
        clock.now_s += took_s
        rooms.append(share.of_step(is_idle=False))
    assert rooms == [BESIDE_ANSWERS, 0, 0, 0, 0, BESIDE_ANSWERS, 0]
