"""The policies that choose which KV is evicted first: one table for settings, service, replay and docs.

A policy says what an entry is worth, and the entry of least worth goes first. Over every policy stand two rules: pinned
KV is not evicted, nor is a prefix before the chunks behind it. The service keeps its one prefix as a file without an
entry, so it never goes.
"""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from ragkv.errors import Rejected

SETTING = "RAGKV_EVICTION"
HALF_LIFE_S = 86_400.0
EvictionName = Literal["cost", "lfu", "lru"]
EvictionReason = Literal["budget", "quota", "by_hand", "unused"]
"""budget: all KV was beyond its limit; quota: a tenant's was; by_hand: on request; unused: no chunk used it any
more."""
HALF_LIVES = (-60.0, 20.0)
"""Bounds of an entry's decayed count of uses, as a power of two: less is none, and more comes from a clock that was
wrong."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The KV of one chunk, as policies see it.

    last_used: seconds since 1970. warm_until: the moment at which its decayed count of uses falls to one, see `warmer`.
    recompute_s: what it takes to compute it again, in the same unit for all entries.
    """

    key: str
    num_bytes: int
    num_tokens: int
    recompute_s: float
    last_used: float
    warm_until: float


Worth = Callable[[Entry], float]
"""Worth of keeping an entry, in any unit: the entry of least worth goes first. It changes only with uses."""


def cost_worth(half_life_s: float, entry: Entry) -> float:
    """Recompute seconds x decayed count of uses / bytes, here its logarithm in half-lives.

    The value of GreedyDual-Size-Frequency (Cherkasova, HP Labs 1998), with uses that decay in place of its ageing
    clock.
    """
    return entry.warm_until + half_life_s * math.log2(entry.recompute_s / entry.num_bytes)


@dataclass(frozen=True, slots=True)
class KnownPolicy:
    """One policy of the table. `keeps`: in words, what it keeps longest; `worth`: by the half-life of a use in
    seconds, of an entry."""

    name: EvictionName
    keeps: str
    source: str
    worth: Callable[[float, Entry], float]


_TABLE = (
    KnownPolicy(
        "cost",
        "the most recompute seconds x recent uses for each byte",
        "after GreedyDual-Size-Frequency, Cherkasova 1998",
        cost_worth,
    ),
    # Frequency that ages, as TinyLFU has it (Einziger, Friedman and Manes, ACM TOS 2017), by continuous decay instead
    # of periodic halving. As all counts decay alike, their order is that of `warm_until` at any moment.
    KnownPolicy(
        "lfu",
        "what was used most often, recent uses first",
        "decayed, after TinyLFU, arXiv 1512.00727",
        lambda _, entry: entry.warm_until,
    ),
    KnownPolicy("lru", "what was used last", "", lambda _, entry: entry.last_used),
)
EVICTION: dict[str, KnownPolicy] = {policy.name: policy for policy in _TABLE}
"""By name, the default first."""
assert tuple(EVICTION) == get_args(EvictionName)


def known_policy(name: str) -> KnownPolicy:
    """The policy of a name. Raises Rejected for a name of none."""
    if name in EVICTION:
        return EVICTION[name]
    if ":" in name:
        names = ", ".join(EVICTION)
        raise Rejected(f"{SETTING}={name}: classes from outside are no longer supported: give one of {names}")
    near = difflib.get_close_matches(name, EVICTION, n=1, cutoff=0.0)[0]
    raise Rejected(f'{SETTING}={name}: did you mean "{near}"?')


def warmer(warm_until: float, now: float, half_life_s: float, uses: int = 1) -> float:
    """`warm_until` after more uses: the decayed count, 2 ** ((warm_until - now) / half-life), plus them.

    One number stands for a count and its moment (forward decay, Cormode et al., ICDE 2009). It never goes back,
    whatever the clock does.
    """
    lowest, highest = HALF_LIVES
    count = 2.0 ** min(max((warm_until - now) / half_life_s, lowest), highest) + uses
    return max(warm_until, now + half_life_s * math.log2(count))
