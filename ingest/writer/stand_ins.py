"""Stand-ins: contexts that stand in for the passages which a chunk will have before it.

A chunk is written behind each of them and behind the bare prefix, and the mean of its keys and values is kept. What its
KV has from passages before it, whichever they are, is then in it; what it has from one of them in particular is
averaged out. The less the bare prefix weighs, the further is the mean from what a chunk alone has.
"""

import random
from collections.abc import Sequence
from itertools import chain

from ragkv.chunk import Chunk
from ragkv.writer import StandIns

CHUNKS = 4
"""Chunks of a stand-in."""
SHARE = 0.5
"""Of the stand-ins in the mean, unless it is given."""


def draw_stand_ins(near: Sequence[Sequence[Chunk]], count: int, share: float, seed: int) -> StandIns:
    """Stand-ins of chunks of different neighbourhoods, as unlike each other as those of a question."""
    drawn = random.Random(seed)  # noqa: S311 - passages, not secrets
    contexts = []
    for _ in range(count):
        chunks = [drawn.choice(chunks) for chunks in drawn.sample(near, min(CHUNKS, len(near)))]
        contexts.append(tuple(chain.from_iterable(chunk.token_ids for chunk in chunks)))
    return StandIns(contexts=tuple(contexts), share=share)
