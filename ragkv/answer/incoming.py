"""KV that is not on this disk when a question needs it: from the object store or, by early reuse, from a worker that
computes it, if that is estimated to be faster than recomputing it."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from ragkv.answer.load_cost import LoadCost, Patience
from ragkv.answer.promote import Promoter
from ragkv.kv.prefilling import Prefilling
from ragkv.kv.store import KVStore
from ragkv.observe import metrics, traces
from ragkv.stitch.located import LocatedKV
from ragkv.threads import Threads

LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Coming:
    """KV that a worker computes: the key that will serve, the chunk's tokens, and the seconds until it is there as
    estimated."""

    key: str
    tokens: int
    in_s: float


class IncomingKV:
    """One per process, on its event loop."""

    def __init__(self, store: KVStore, cost: LoadCost, patience: Patience, promoter: Promoter | None = None) -> None:
        """cost: is to be told how long answers took. promoter: where there is an object store."""
        self.cost = cost
        self._store = store
        self._prefilling = Prefilling(store.folder)
        self._patience = patience
        self._promoter = promoter
        self._threads = Threads("early reuse", 2)

    async def bring(self, located: LocatedKV, repaired: float) -> LocatedKV:
        """Bring absent KV to disk where that beats recomputing. Raises nothing.

        repaired: the share of stored KV that is recomputed all the same; where that is all, none is brought.
        """
        if repaired >= 1:
            return located
        promoted = frozenset[str]()
        waiting = self.wait(located, repaired)
        if self._promoter is None:
            awaited = await waiting
        else:
            with traces.span("promotion"):
                promoted, awaited = await asyncio.gather(self._promoter.bring(located), waiting)
        if not promoted and not awaited:
            return located
        return await self._threads.run(located.with_arrived, promoted, awaited, self._store)

    async def wait(self, located: LocatedKV, repaired: float) -> frozenset[str]:
        """Wait for KV that a worker is computing, as long as that saves time. Returns the keys that are there then."""
        serving = ((passage, passage.serving(located.coming)) for passage in located.passages)
        coming = dict.fromkeys(
            Coming(key, passage.chunk.num_tokens, located.coming[key]) for passage, key in serving if key is not None
        )
        saved = {kv: (1 - repaired) * (self.cost.compute_s(kv.tokens) or 0.0) for kv in coming}
        awaited, patience = worth_awaiting(saved)
        patience = min(patience, self._patience.seconds(sum(kv.tokens for kv in awaited)))
        began = time.perf_counter()
        left, arrived = {kv.key for kv in awaited}, set[str]()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):  # a look, too, may have to wait: for those of other questions
                while left:
                    await asyncio.sleep(min(LOOK_EVERY_S, patience))
                    written, left = await self._threads.run(self._look_again, left)
                    arrived |= written
        if awaited:
            metrics.kv_wait.observe(time.perf_counter() - began)
        for kv in coming:
            if kv not in awaited:
                metrics.kv_awaited("not_awaited")
            elif kv.key in arrived:
                metrics.kv_awaited("in_time")
            else:
                metrics.kv_awaited("late" if kv.key in left else "failed")
        return frozenset(arrived)

    def _look_again(self, keys: set[str]) -> tuple[set[str], set[str]]:
        """The keys that have a file now, and those without one that a running process still computes."""
        # Before the look at the files: a worker stores, then withdraws.
        expected = self._prefilling.ready_in_s()
        written = {key for key in keys if key in self._store}
        return written, (keys & expected.keys()) - written


def worth_awaiting(saved: Mapping[Coming, float]) -> tuple[list[Coming], float]:
    """The chunks worth awaiting, and the longest wait that still saves time.

    saved: seconds of recomputing each. Waiting for the soonest is part of waiting for later ones, so that one of as
    many choices as there are moments is best: where the saving is farthest above the wait. None if it is above it
    nowhere.
    """
    soonest_first = sorted(saved, key=lambda kv: kv.in_s)
    totals = [0.0, *accumulate(saved[kv] for kv in soonest_first)]
    waits = [0.0, *(kv.in_s for kv in soonest_first)]
    count = max(range(len(totals)), key=lambda count: totals[count] - waits[count])
    return soonest_first[:count], totals[count]
