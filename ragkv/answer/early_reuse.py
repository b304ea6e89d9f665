"""Early reuse: waits for KV that a worker is computing, if that is estimated to be faster than recomputing it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ragkv.answer.load_cost import LoadCost, Patience
from ragkv.answer.promote import Absent
from ragkv.chunk import Chunk
from ragkv.kv.key import KeyMaker
from ragkv.kv.prefilling import Prefilling
from ragkv.kv.store import KVStore
from ragkv.observe import metrics
from ragkv.threads import Threads

LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Coming:
    """KV that a worker computes: the key that will serve, the chunk's tokens, and the seconds until it is there as
    estimated."""

    key: str
    tokens: int
    in_s: float


class EarlyReuse:
    """One per process, on its event loop."""

    def __init__(self, store: KVStore, cost: LoadCost, patience: Patience) -> None:
        self._store = store
        self._prefilling = Prefilling(store.folder)
        self._cost = cost
        self._patience = patience
        self._threads = Threads("early reuse", 2)

    async def wait(self, chunks: Sequence[Chunk], keys: KeyMaker, repaired: float) -> None:
        """Wait for KV of these chunks that a worker is computing, as long as that saves time. Raises nothing.

        repaired: the share of stored KV that is recomputed all the same.
        """
        coming = await self._threads.run(self._look, chunks, keys)
        if not coming:
            return
        saved = {one: (1 - repaired) * (self._cost.compute_s(one.tokens) or 0.0) for one in coming}
        chosen, patience = worth_awaiting(saved)
        patience = min(patience, self._patience.seconds(sum(one.tokens for one in chosen)))
        began = time.perf_counter()
        left, there = {one.key for one in chosen}, set[str]()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):  # a look, too, may have to wait: for those of other questions
                while left:
                    await asyncio.sleep(min(LOOK_EVERY_S, patience))
                    arrived, left = await self._threads.run(self._look_again, left)
                    there |= arrived
        if chosen:
            metrics.waited_for_kv(time.perf_counter() - began)
        for one in coming:
            if one not in chosen:
                metrics.kv_awaited("not_awaited")
            elif one.key in there:
                metrics.kv_awaited("in_time")
            else:
                metrics.kv_awaited("late" if one.key in left else "failed")

    def _look(self, chunks: Sequence[Chunk], keys: KeyMaker) -> list[Coming]:
        """Chunks without KV that a worker is prefilling."""
        if not self._prefilling.any():
            return []
        named = [
            Absent(tuple(keys.chunk(one.token_ids, how) for how in keys.makings), one.num_tokens) for one in chunks
        ]
        absent = [one for one in named if not any(key in self._store for key in one.keys)]
        expected = self._prefilling.ready_in_s({key for one in absent for key in one.keys}) if absent else {}
        found = ((one, next((key for key in one.keys if key in expected), None)) for one in absent)
        return list(dict.fromkeys(Coming(key, one.tokens, expected[key]) for one, key in found if key is not None))

    def _look_again(self, keys: set[str]) -> tuple[set[str], set[str]]:
        """The keys that have a file now, and those without one that a running process still computes."""
        # Before the look at the files: a worker stores, then withdraws.
        expected = self._prefilling.ready_in_s(keys)
        there = {key for key in keys if key in self._store}
        return there, (keys & expected.keys()) - there


def worth_awaiting(saved: Mapping[Coming, float]) -> tuple[list[Coming], float]:
    """The chunks worth awaiting, and the longest wait that still saves time.

    saved: seconds of recomputing each. Waiting for the soonest is part of waiting for later ones, so that one of as
    many choices as there are moments is best: where the saving is farthest above the wait. None if it is above it
    nowhere.
    """
    soonest_first = sorted(saved, key=lambda one: one.in_s)
    best: tuple[float, int, float] = (0.0, 0, 0.0)
    total = 0.0
    for count, one in enumerate(soonest_first, start=1):
        total += saved[one]
        if total - one.in_s > best[0]:
            best = (total - one.in_s, count, total)
    _, count, patience = best
    return soonest_first[:count], patience
