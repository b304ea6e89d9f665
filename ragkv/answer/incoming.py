"""KV that is not on this disk when a question needs it: loaded from the object store, or computed by the engine for the
question, where ingestion has not come to it yet."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from ragkv.answer.load_cost import LoadCost
from ragkv.answer.promote import Promoter
from ragkv.engine.protocol import KVEngine, Prefill
from ragkv.errors import RagKVError
from ragkv.kv.store import KVStore
from ragkv.observe import metrics, traces
from ragkv.observe.throttled_log import ThrottledLog
from ragkv.stitch.located import LocatedKV
from ragkv.threads import Threads

WORTH_S = 0.25
"""Seconds of computing absent KV from which on it is stored first. An accelerator computes most prompts sooner than
their KV is written to a disk and read back."""

Awaiting = Callable[[Sequence[str]], Collection[str]]
"""Those of these chunks, by id, whose KV ingestion will compute. Blocks. Raises RagKVError where none may be stored."""

log = ThrottledLog(logging.getLogger(__name__))


class IncomingKV:
    """One per process, on its event loop."""

    def __init__(
        self, store: KVStore, cost: LoadCost, engine: KVEngine, awaiting: Awaiting, promoter: Promoter | None = None
    ) -> None:
        """cost: is to be told how long answers took. promoter: where there is an object store."""
        self.cost = cost
        self._store = store
        self._engine = engine
        self._awaiting = awaiting
        self._promoter = promoter
        self._threads = Threads("incoming KV", 2)

    async def bring(self, located: LocatedKV, repaired: float) -> LocatedKV:
        """Bring absent KV to disk where that beats recomputing. Raises nothing.

        repaired: the share of stored KV that is recomputed all the same; where that is all, none is brought.
        """
        if repaired >= 1:
            return located
        promoted = frozenset[str]()
        if self._promoter is None:
            computed = await self._compute(located)
        else:
            with traces.span("promotion"):
                promoted, computed = await asyncio.gather(self._promoter.bring(located), self._compute(located))
        if not promoted and not computed:
            return located
        return await self._threads.run(located.with_arrived, promoted, computed, self._store)

    async def _compute(self, located: LocatedKV) -> frozenset[str]:
        """Have the engine compute and store KV that only ingestion would bring. Returns the keys that are there then.

        It costs the question about as much as recomputing in place; the next one, and ingestion, find it. Not where
        compression reads on behind each chunk.
        """
        absent = {
            passage.key: passage.chunk
            for passage in located.passages
            if passage.absent and passage.serving(located.remote) is None
        }
        seconds = self.cost.compute_s(sum(chunk.num_tokens for chunk in absent.values()))
        is_worth = bool(absent) and (seconds is None or seconds >= WORTH_S)
        if not is_worth or located.is_written_alone or located.keys.compression:
            return frozenset()
        try:
            awaited = await self._threads.run(self._awaiting, [chunk.id for chunk in absent.values()])
            batch = [(key, chunk) for key, chunk in absent.items() if chunk.id in awaited]
            if batch:
                with traces.span("prefill of absent KV"):
                    await self._engine.prefill(Prefill.of(batch, located.keys, is_urgent=True))
        except RagKVError as error:
            metrics.kv_computed.labels("failed").inc(len(absent))
            log.warning("KV that questions lack is recomputed in place: %s", error)
            return frozenset()
        metrics.kv_computed.labels("stored").inc(len(batch))
        return frozenset((located.prefix, *(key for key, _ in batch)) if batch else ())
