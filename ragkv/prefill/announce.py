"""Announces the KV that a prefill computes, and when it will be ready, estimated from this process's rate."""

import time
from collections.abc import Sequence

from ragkv.kv import prefilling
from ragkv.kv.prefilling import Prefilling
from ragkv.prefill.precompute import Batch

AHEAD_TOKENS = 16_384
"""Tokens of the batches that are announced, the one under way and those behind it: a turn's, or what a question could
wait for."""
FORGETTING = 0.7
"""Weight of the rate measured before, at each batch."""


class Announcer:
    """One per process. Nothing is announced before the first batch has shown how fast the model is."""

    def __init__(self, prefilling: Prefilling, prefix_tokens: int) -> None:
        """prefix_tokens: length of the prefix prefilled with each chunk."""
        self._prefilling = prefilling
        self._prefix_tokens = prefix_tokens
        self._token_s: float | None = None
        self._announced = prefilling.announce(())
        self._batches: Sequence[Batch] = ()
        self._began = 0.0

    def under_way(self, batches: Sequence[Batch]) -> None:
        """Announce these, in the order in which they are computed from now on, in place of those announced before. If
        one batch fewer remains, the first has finished and updates the rate."""
        now_s = time.time()
        if self._batches and len(batches) == len(self._batches) - 1:
            token_s = (time.perf_counter() - self._began) / self._tokens(self._batches[0])
            self._token_s = (
                token_s if self._token_s is None else FORGETTING * self._token_s + (1 - FORGETTING) * token_s
            )
        earlier, self._announced = self._announced, self._prefilling.announce(self._estimated(batches, now_s))
        earlier.withdraw()
        self._batches, self._began = batches, time.perf_counter()

    def _estimated(self, batches: Sequence[Batch], began_s: float) -> list[prefilling.AnnouncedBatch]:
        """takes_s counts from now for each: batches come one after the other."""
        announced: list[prefilling.AnnouncedBatch] = []
        tokens = 0
        if self._token_s is None:
            return announced
        for batch in batches:
            tokens += self._tokens(batch)
            if announced and tokens > AHEAD_TOKENS:
                break
            announced.append(prefilling.AnnouncedBatch(tuple(key for key, _ in batch), began_s, tokens * self._token_s))
        return announced

    def _tokens(self, batch: Batch) -> int:
        """Tokens that run through the model, padding included."""
        return len(batch) * (self._prefix_tokens + max(chunk.num_tokens for _, chunk in batch))
