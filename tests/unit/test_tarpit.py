"""Refusals that come late."""

import time

from api.access.tarpit import AT_ONCE, LONGEST_S, Delays


def test_the_first_refusals_are_not_late_and_then_each_is_later_than_the_one_before():
    delays = Delays(60)
    first = [delays.next("tenant 1") for _ in range(AT_ONCE)]
    then = [delays.next("tenant 1") for _ in range(10)]

    assert set(first) == {0.0}
    assert then == sorted(then)
    assert 0.9 < then[0] <= 1
    assert LONGEST_S - 0.1 < then[-1] <= LONGEST_S


def test_each_owner_counts_by_itself():
    delays = Delays(60)
    for _ in range(100):
        delays.next("address 10.0.0.1")

    assert delays.next("tenant 1") == 0.0


def test_zero_switches_it_off():
    delays = Delays(0)

    assert {delays.next("tenant 1") for _ in range(100)} == {0.0}


def test_owners_with_a_full_bucket_are_forgotten():
    delays = Delays(600_000, prune_every_s=0)
    delays.next("tenant 1")
    time.sleep(0.01)
    delays.next("tenant 2")

    assert set(delays._full_at) == {"tenant 2"}


def test_owners_are_looked_through_at_intervals_not_at_every_refusal():
    delays = Delays(600_000, prune_every_s=60)
    delays.next("tenant 1")
    time.sleep(0.01)
    delays.next("tenant 2")

    assert set(delays._full_at) == {"tenant 1", "tenant 2"}
