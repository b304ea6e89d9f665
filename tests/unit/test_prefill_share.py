"""Prefills beside answers take two thirds of the engine's time, and all of it without answers; none delays the question
that may come next for long."""

import pytest

from ragkv.connector import prefill_share
from ragkv.connector.prefill_share import (
    BESIDE_ANSWERS,
    IDLE_TOKENS,
    LIVELY_S,
    MAX_CREDIT_S,
    WAITING_S,
    PrefillShare,
)
from tests.support.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(prefill_share, "time", clock)
    return clock


def test_an_engine_without_answers_is_filled_with_prefills(clock: Clock):
    share = PrefillShare()
    assert [share.of_step(is_idle=True, is_asked=True) for _ in range(3)] == [IDLE_TOKENS] * 3


def test_behind_an_answer_none_begins_at_once_and_steps_are_short(clock: Clock):
    share = PrefillShare()
    share.of_step(is_idle=False, is_asked=True)
    room = []
    for seconds in (0.0, WAITING_S / 2, WAITING_S, LIVELY_S / 2, LIVELY_S):
        clock.now_s += seconds
        room.append(share.of_step(is_idle=True, is_asked=True))
    assert room == [0, 0, IDLE_TOKENS // 4, IDLE_TOKENS // 4, IDLE_TOKENS]


def test_what_a_question_waits_for_has_room_in_each_step(clock: Clock):
    share = PrefillShare()
    assert rooms(share, clock, [MAX_CREDIT_S] * 2)[-1] == 0
    assert share.of_step(is_idle=False, is_asked=True, is_urgent=True) == BESIDE_ANSWERS
    assert share.of_step(is_idle=True, is_asked=True, is_urgent=True) == IDLE_TOKENS


def rooms(share: PrefillShare, clock: Clock, steps_s: list[float], *, is_asked: bool = True) -> list[int]:
    """Room in steps beside answers, each after one that took so long, for the prefills that had room in it."""
    granted = [0]
    for took_s in steps_s:
        clock.now_s += took_s
        share.note(took_s if granted[-1] else 0.0)
        granted.append(share.of_step(is_idle=False, is_asked=is_asked))
    del granted[0]
    return granted


def test_beside_answers_prefills_take_two_thirds_of_the_time(clock: Clock):
    share, began_s, prefills_s = PrefillShare(), clock.now_s, 0.0
    for _ in range(1000):
        if share.of_step(is_idle=False, is_asked=True):
            share.note(0.25)
            prefills_s += 0.25
            clock.now_s += 0.25
        clock.now_s += 0.05  # answers
    assert prefills_s / (clock.now_s - began_s) == pytest.approx(2 / 3, abs=0.01)


def test_prefills_after_a_pause_make_up_for_a_part_of_it(clock: Clock):
    share = PrefillShare()
    assert rooms(share, clock, [0.1] * 100, is_asked=False) == [0] * 100
    assert rooms(share, clock, [0.1, *[MAX_CREDIT_S / 2] * 3]) == [BESIDE_ANSWERS, BESIDE_ANSWERS, 0, BESIDE_ANSWERS]
