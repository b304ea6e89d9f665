"""KV that is not on this disk when a question needs it: from the object store, or from a worker that is computing
it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ragkv.answer.early_reuse import EarlyReuse
from ragkv.answer.load_cost import LoadCost
from ragkv.answer.promote import Promoter
from ragkv.chunk import Chunk
from ragkv.kv.key import KeyMaker
from ragkv.observe import traces


@dataclass(frozen=True, slots=True)
class AwaitedKV:
    """cost: is to be told how long answers took. promoter: where there is an object store."""

    cost: LoadCost
    early_reuse: EarlyReuse
    promoter: Promoter | None = None

    async def bring(self, chunks: Sequence[Chunk], keys: KeyMaker, repaired: float) -> frozenset[str]:
        """Bring these chunks' KV to disk where that beats recomputing. Returns the keys that came from the object
        store. Raises nothing.

        repaired: the share of stored KV that is recomputed all the same; where that is all, none is read.
        """
        if repaired >= 1:
            return frozenset()
        waiting = self.early_reuse.wait(chunks, keys, repaired)
        if self.promoter is None:
            await waiting
            return frozenset()
        with traces.span("promotion"):
            promoted, _ = await asyncio.gather(self.promoter.bring(chunks, keys), waiting)
        return promoted
