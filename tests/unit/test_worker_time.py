"""How a worker's time is divided: turns, the share of KV, and the size of its batches."""

import pytest

from ingest import turn
from ingest.turn import (
    BATCH_SECONDS,
    BATCH_TOKENS,
    FIRST_TOKENS,
    KV_SHARE,
    LOOK_SECONDS,
    READING_SECONDS,
    TURN_SECONDS,
    BatchSize,
    KVShare,
    Turn,
    TurnOver,
)
from ragkv.service.documents.job_statements import Others
from tests.support.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turn, "time", clock)
    return clock


def seconds_until_over(others: Others, clock: Clock) -> float:
    """Seconds of KV, in batches of a tenth, until a turn ends."""
    began, kv_turn = clock.now_s, Turn(lambda: others)
    while clock.now_s - began < 1000:
        clock.now_s += 0.1
        try:
            kv_turn.stored_kv()
        except TurnOver:
            break
    return clock.now_s - began


def test_a_turn_of_kv_ends_soon_for_what_cannot_be_searched_later_for_kv_and_never_for_none(clock: Clock):
    assert seconds_until_over(Others.UNREAD, clock) == pytest.approx(LOOK_SECONDS, abs=0.2)
    assert seconds_until_over(Others.LACK_KV, clock) == pytest.approx(TURN_SECONDS, abs=LOOK_SECONDS)
    assert seconds_until_over(Others.NONE, clock) >= 1000


def test_the_database_is_looked_at_every_two_seconds_at_most(clock: Clock):
    looks: list[float] = []

    def others_wait() -> Others:
        looks.append(clock.now_s)
        return Others.NONE

    kv_turn = Turn(others_wait)
    for _ in range(1000):
        clock.now_s += 0.01
        kv_turn.stored_kv()
        kv_turn.is_over()

    assert 4 <= len(looks) <= 10 / LOOK_SECONDS


def test_pages_are_read_for_a_while_before_others_come_in_between(clock: Clock):
    reading = Turn(lambda: Others.UNREAD)
    clock.now_s += READING_SECONDS - 0.1
    assert not reading.is_over()
    clock.now_s += 0.2
    assert reading.is_over()


def test_a_document_that_became_searchable_gives_way_to_any_other(clock: Clock):
    Turn(lambda: Others.NONE).made_searchable()
    for others in (Others.UNREAD, Others.LACK_KV):
        with pytest.raises(TurnOver):
            Turn(lambda others=others: others).made_searchable()


def test_kv_gets_its_share_while_documents_are_read_and_is_owed_one_turn_at_most(clock: Clock):
    share, kv_s, began = KVShare(), 0.0, clock.now_s
    while clock.now_s - began < 1000:
        with share.spending() if share.is_due else share.earning():
            kv_s += 0.125 * share.is_due
            clock.now_s += 0.125
    assert kv_s == pytest.approx(1000 * KV_SHARE, rel=0.1)

    with share.earning():
        clock.now_s += 3600
    with share.spending():
        clock.now_s += LOOK_SECONDS
    assert not share.is_due


def test_batches_grow_while_they_are_fast_and_shrink_to_the_seconds_that_one_may_take(subtests):
    for token_s, expected in (
        (1e-5, BATCH_TOKENS),  # a GPU
        (1e-3, 1024),  # a small model on a CPU
        (1e-1, FIRST_TOKENS),
    ):
        with subtests.test(token_s=token_s):
            size = BatchSize()
            for _ in range(20):
                tokens = size.tokens()
                size.adapt(tokens, tokens * token_s)
            assert size.tokens() == expected

    size = BatchSize(4096)
    size.adapt(4096, 2 * BATCH_SECONDS + 0.1)
    assert size.tokens() == 2048


def test_times_that_vary_less_than_fourfold_do_not_change_the_size():
    size = BatchSize(2048)
    for factor in (0.6, 1.9, 1.0, 0.55, 1.8):
        size.adapt(2048, BATCH_SECONDS * factor)
        assert size.tokens() == 2048


def test_a_batch_that_is_not_full_is_judged_by_its_pace():
    size = BatchSize(2048)
    size.adapt(256, BATCH_SECONDS / 8)
    assert size.tokens() == 2048
    size.adapt(256, BATCH_SECONDS)
    assert size.tokens() == 1024
