"""A fair queue: whoever has received the least so far is served next."""

from collections import deque
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

T = TypeVar("T")

SMALLEST_S = 0.001
"""What an item counts for until it is known: those of one owner are not all taken at once."""
HEAVIEST = 8
"""Largest weight: no owner's share becomes so small that it seems none."""
MANY_OWNERS = 1000
"""Limit on owners that are remembered; beyond it, those without a waiting item are forgotten."""


class FairQueue(Generic[T]):
    """Start-time fair queueing over the owners of the items (Goyal, Vin and Cheng, 1996), in which the weight of an
    owner is one over the number of its items here, at most HEAVIEST: who asks for one thing after the other comes
    before who asks for many at once, and waits for what is being done, not for what others have brought. Not safe to
    share between threads without a lock."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._starts: dict[str, float] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, owner: str, item: T) -> None:
        """An owner that had nothing waiting starts at the present time: unused time is not saved up."""
        if owner not in self._waiting:
            self._waiting[owner] = deque()
            self._starts[owner] = max(self._now, self._starts.get(owner, 0.0))
        self._waiting[owner].append(item)

    def any_but(self, owners: AbstractSet[str]) -> bool:
        """Whether an item of another owner than these waits."""
        return not self._waiting.keys() <= owners

    def take(self, passing_over: AbstractSet[str] = frozenset()) -> tuple[str, T]:
        """(owner, item) of who is next, other than the owners passed over; there must be one. Say with `charge` how
        long it took."""
        owner = min((name for name in self._waiting if name not in passing_over), key=self._starts.__getitem__)
        self._now = max(self._now, self._starts[owner])
        self.charge(owner, SMALLEST_S)
        items = self._waiting[owner]
        item = items.popleft()
        if not items:
            del self._waiting[owner]
        if len(self._starts) > MANY_OWNERS:
            self._starts = {name: at for name, at in self._starts.items() if name in self._waiting or at > self._now}
        return owner, item

    def charge(self, owner: str, seconds: float) -> None:
        """Charge the owner of a taken item with the seconds that it took."""
        waiting = len(self._waiting.get(owner, ()))
        self._starts[owner] = self._starts.get(owner, self._now) + seconds * min(1 + waiting, HEAVIEST)
