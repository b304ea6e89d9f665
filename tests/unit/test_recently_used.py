"""Values of the keys used last."""

from ragkv.threads import RecentlyUsed


def test_a_value_is_made_once_and_kept():
    values = RecentlyUsed[str, object](object, size=2)

    assert values.of("a") is values.of("a") is not values.of("b")


def test_the_key_that_was_used_longest_ago_goes_first():
    values = RecentlyUsed[str, object](object, size=2)
    first = values.of("a")

    values.of("b")
    values.of("a")
    values.of("c")

    assert values.keys() == ["a", "c"]
    assert values.of("a") is first


def test_a_look_makes_nothing_and_is_no_use():
    values = RecentlyUsed[str, object](object, size=2)
    values.of("a")
    values.of("b")

    assert values.peek("a") is not None
    assert values.peek("c") is None

    values.of("c")
    assert values.keys() == ["b", "c"]


def test_what_is_dropped_is_made_again():
    values = RecentlyUsed[str, object](object, size=2)
    first = values.of("a")

    values.drop("a")
    values.drop("b")

    assert values.of("a") is not first
