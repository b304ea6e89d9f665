"""Promotion: loads KV that a question needs from the object store to disk, within a deadline.

It begins when retrieval has chosen the passages. What has not come by the deadline is recomputed, and goes on loading
for the next question. Any number of questions that need one file load it once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from ragkv.answer.load_cost import LoadCost, Patience
from ragkv.errors import Corrupt, NotFound, OutOfSpace, RagKVError, Unavailable
from ragkv.kv.remote import ObjectStore
from ragkv.kv.store import KVStore
from ragkv.observe import metrics
from ragkv.observe.throttled_log import ThrottledLog
from ragkv.stitch.located import LocatedKV
from ragkv.threads import Threads

AT_ONCE = 16
"""Loads of a process at the same time. Each holds a piece of its object in memory."""
ABSENT_S = 60.0
"""Time before a prefix that is missing in the object store is requested again."""
RECOMPUTED = "KV in the object store is recomputed: %s"

Load = Literal["loaded", "missing", "corrupt", "unavailable", "no_room"]

_OUTCOMES: dict[type[Exception], Load] = {
    NotFound: "missing",
    Corrupt: "corrupt",
    OutOfSpace: "no_room",
    OSError: "no_room",
    RagKVError: "unavailable",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteIndex:
    """The database, as far as promotion needs it. All of it blocks, and raises Unavailable.

    lost: the object of a key is gone or damaged. room: for so many bytes on this disk, in a block; raises OutOfSpace.
    """

    lost: Callable[[str], None]
    room: Callable[[int], AbstractContextManager[None]]


class Promoter:
    """One per process, on its event loop."""

    def __init__(
        self, store: KVStore, remote: ObjectStore, remote_index: RemoteIndex, cost: LoadCost, patience: Patience
    ) -> None:
        self.cost = cost
        self._store = store
        self._remote = remote
        self._remote_index = remote_index
        self._log = ThrottledLog(log)
        self._patience = patience
        self._threads = Threads("promotion", AT_ONCE)
        self._loading: dict[str, asyncio.Task[Load]] = {}
        self._no_prefix: dict[str, float] = {}
        self._unused: set[str] = set()

    async def bring(self, located: LocatedKV) -> frozenset[str]:
        """Bring absent KV of passages and prefix to disk. Returns the keys that arrived by the deadline. Raises
        nothing."""
        self._unused.difference_update(passage.key for passage in located.passages if not passage.absent)
        absent = [passage for passage in located.passages if passage.absent]
        tokens = {
            key: passage.chunk.num_tokens for passage in absent if (key := passage.serving(located.remote)) is not None
        }
        sizes = {key: located.remote[key] for key in tokens}
        is_known = located.has_prefix or time.monotonic() - self._no_prefix.get(located.prefix, -ABSENT_S) < ABSENT_S
        if not is_known and (tokens or not absent):
            sizes[located.prefix] = 0
        return await self._wait_for(sizes, sum(tokens.values()))

    async def _wait_for(self, sizes: Mapping[str, int], tokens: int) -> frozenset[str]:
        """Load these files, and wait for them as long as it pays. Those that are there then."""
        began = time.perf_counter()
        loads = {key: self._load(key, size) for key, size in sizes.items()}
        if not loads:
            return frozenset()
        # At most as long as computing the tokens would take, and not at all for what is estimated to take longer.
        patience, compute_s = self._patience.base_s, self.cost.compute_s(tokens)
        if compute_s is not None and tokens:
            load_s = self.cost.load_s(list(sizes.values()), AT_ONCE)
            is_slower = load_s is not None and load_s > compute_s
            patience = 0.0 if is_slower else min(self._patience.seconds(tokens), compute_s)
        if patience > 0:
            await asyncio.wait(loads.values(), timeout=patience)
            metrics.kv_wait.observe(time.perf_counter() - began)
        done = {key: load for key, load in loads.items() if load.done() and not load.cancelled()}
        in_time = {key for key, load in done.items() if load.exception() is None and load.result() == "loaded"}
        self._unused -= in_time
        for key, load in loads.items():
            if key in in_time:
                metrics.kv_promoted("in_time")
            elif load.done():
                metrics.kv_promoted("failed")
            else:
                metrics.kv_promoted("late" if patience > 0 else "not_awaited")
        return frozenset(in_time)

    def _load(self, key: str, size: int) -> asyncio.Task[Load]:
        """The load of a file, which may be under way already."""
        if (under_way := self._loading.get(key)) is not None:
            return under_way
        load = asyncio.create_task(self._threads.run(self._fetch, key, size))
        self._loading[key] = load
        load.add_done_callback(lambda _: self._loading.pop(key, None))
        return load

    def _fetch(self, key: str, size: int) -> Load:
        """Load a file, unless another question's load brought it since this one looked."""
        if self._store.touch(key):
            return "loaded"
        try:
            with self._remote_index.room(size):
                try:
                    self._fetch_once(key)
                except Corrupt as error:  # once more: it may have been damaged on its way
                    metrics.kv_load_failures.labels("corrupt").inc()
                    self._log.warning(RECOMPUTED, error)
                    self._fetch_once(key)
        except (RagKVError, OSError) as error:
            outcome = next(outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind))
            metrics.kv_load_failures.labels(outcome).inc()
            self._log.warning(RECOMPUTED, error)
            self._note_loss(key, outcome, has_entry=size > 0)
            return outcome
        self._unused.add(key)
        return "loaded"

    def _fetch_once(self, key: str) -> None:
        began = time.perf_counter()
        num_bytes = self._store.fetch(key, self._remote)
        took = time.perf_counter() - began
        self.cost.loaded(num_bytes, took)
        metrics.kv_loads.observe(took)
        metrics.kv_loaded_bytes.inc(num_bytes)

    def _note_loss(self, key: str, outcome: Load, *, has_entry: bool) -> None:
        """Remove a damaged object; it is uploaded again by a host that has the file."""
        if outcome == "missing" and not has_entry:
            self._no_prefix[key] = time.monotonic()
            return
        if outcome not in ("missing", "corrupt"):
            return
        try:
            if outcome == "corrupt":
                self._remote.delete([key])
            self._remote_index.lost(key)
        except Unavailable as error:
            self._log.warning(RECOMPUTED, error)

    def dropped(self, keys: Sequence[str]) -> None:
        """Files went to make room: those that no answer had used were loaded for nothing."""
        wasted = self._unused.intersection(keys)
        self._unused -= wasted
        metrics.kv_wasted.inc(len(wasted))
