"""Who comes next."""

from ragkv.threads import HEAVIEST, FairQueue


def served(queue: FairQueue[str], seconds: float = 1.0) -> list[str]:
    """The owners of all that waits, in the order in which they are served, each item taking so long."""
    owners = []
    while queue:
        owner, _ = queue.take()
        queue.charge(owner, seconds)
        owners.append(owner)
    return owners


def test_who_asks_for_one_thing_at_a_time_comes_before_who_asks_for_many_at_once():
    queue = FairQueue[str]()
    for number in range(20):
        queue.put("many", str(number))
    waited = []
    for _ in range(4):
        queue.put("one", "again")
        owner, turns = "", 0
        while owner != "one":
            owner, _ = queue.take()
            queue.charge(owner, 1.0)
            turns += 1
        waited.append(turns)

    assert max(waited) <= 2


def test_items_of_one_owner_keep_their_order():
    queue = FairQueue[str]()
    for item in "abc":
        queue.put("one", item)

    assert [queue.take()[1] for _ in "abc"] == ["a", "b", "c"]


def test_nobody_waits_for_ever():
    queue = FairQueue[str]()
    for _ in range(1000):
        queue.put("flood", "")
    for name in ("one", "two", "three"):
        for _ in range(30):
            queue.put(name, "")

    assert served(queue)[: 8 * HEAVIEST].count("flood") >= 1


def test_equals_share_equally():
    queue = FairQueue[str]()
    for _ in range(10):
        for name in ("one", "two"):
            queue.put(name, "")

    first = served(queue)[:10]

    assert abs(first.count("one") - first.count("two")) <= 2
