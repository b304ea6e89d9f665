"""Policies of eviction, each held to its definition."""

import math
import random
from functools import partial
from pathlib import Path

import pytest

from ragkv.errors import Rejected
from ragkv.kv.eviction import EVICTION, Entry, known_policy, warmer
from ragkv.settings import Settings

HALF_LIFE_S = 100.0
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"


def count(uses: list[float], now: float) -> float:
    return sum(0.5 ** ((now - moment) / HALF_LIFE_S) for moment in uses)


def test_policies_order_entries_as_they_are_defined():
    draw = random.Random(3)
    entries, uses = [], {}
    for n in range(60):
        uses[str(n)] = sorted(draw.uniform(0, 900) for _ in range(draw.randrange(1, 12)))
        warm_until = -math.inf
        for moment in uses[str(n)]:
            warm_until = warmer(warm_until, moment, HALF_LIFE_S)
        size, seconds = draw.randrange(1, 10**6), draw.uniform(0.01, 5)
        entries.append(Entry(str(n), size, 256, seconds, uses[str(n)][-1], warm_until))
    defined = {
        "lru": lambda entry: uses[entry.key][-1],
        "lfu": lambda entry: count(uses[entry.key], 1000),
        "cost": lambda entry: entry.recompute_s * count(uses[entry.key], 1000) / entry.num_bytes,
    }

    assert defined.keys() == EVICTION.keys()
    for name, by_definition in defined.items():
        worth = partial(known_policy(name).worth, HALF_LIFE_S)
        assert sorted(entries, key=worth) == sorted(entries, key=by_definition), name


def test_the_policies_are_documented_as_they_are():
    rows = [f"| `{policy.name}` | {policy.keeps} | {policy.source} |" for policy in EVICTION.values()]

    assert "\n".join(rows) in ARCHITECTURE.read_text()


@pytest.mark.parametrize("now", [-(10.0**12), 0.0, 1e9, 1e9 + 1, 10.0**15])
def test_a_clock_that_jumps_leaves_a_finite_count_that_is_no_less(now: float):
    warm = warmer(1e9, now, HALF_LIFE_S, 5)

    assert math.isfinite(warm)
    assert warm >= max(1e9, now)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lur", 'did you mean "lru"'),
        ("", "did you mean"),
        ("package.module:Class", "classes from outside are no longer supported: give one of cost, lfu, lru"),
    ],
)
def test_a_name_of_no_policy_is_refused(name: str, reason: str):
    with pytest.raises(Rejected, match=reason):
        Settings.from_env({"RAGKV_EVICTION": name})
