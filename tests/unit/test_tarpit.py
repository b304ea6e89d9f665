"""Refusals that come late."""

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
