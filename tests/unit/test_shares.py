"""Who has to give up KV, and how much."""

from ragkv.files_io import GIB, default_reserve
from ragkv.service.kv_admin.eviction import Excess, excesses, fair_share


def test_within_bounds_nobody_gives_up_anything():
    assert excesses({"a": 10, "b": 20}, quota=20, limit=30) == []
    assert excesses({"a": 10**12}, quota=0, limit=0) == []
    assert excesses({}, quota=1, limit=1) == []


def test_beyond_its_quota_a_tenant_gives_up_its_own():
    assert excesses({"a": 10, "b": 25}, quota=20, limit=100) == [Excess("b", 5, "quota")]


def test_beyond_the_limit_the_one_that_keeps_most_gives_up_until_it_keeps_no_more_than_the_next():
    kept = {"small": 10, "large": 100, "middle": 40}

    assert excesses(kept, quota=0, limit=130)[0] == Excess("large", 20, "budget")
    assert excesses(kept, quota=0, limit=60)[0] == Excess("large", 60, "budget")


def test_step_by_step_all_come_to_equal_shares_and_a_small_tenant_keeps_all_of_its_own():
    kept = {"small": 10, "large": 1000, "middle": 400}
    while found := excesses(kept, quota=0, limit=110):
        kept[found[0].tenant_id] -= found[0].num_bytes

    assert kept["small"] == 10
    assert abs(kept["large"] - kept["middle"]) <= 1
    assert sum(kept.values()) <= 110


def test_one_that_has_nothing_to_give_up_is_followed_by_the_next():
    assert [one.tenant_id for one in excesses({"a": 5, "b": 9, "c": 7}, quota=0, limit=10)] == ["b", "c", "a"]


def test_a_tenant_may_pin_its_quota_or_its_share_whichever_is_less():
    assert fair_share(2, quota=0, limit=100) == 50
    assert fair_share(2, quota=30, limit=100) == 30
    assert fair_share(2, quota=30, limit=0) == 30
    assert fair_share(2, quota=0, limit=0) == 0


def test_a_twentieth_of_the_disk_stays_free_within_reason():
    assert [default_reserve(size * GIB) // GIB for size in (4, 100, 10_000)] == [1, 5, 10]
