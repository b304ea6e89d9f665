"""Tokens that the model goes on with behind each chunk of a prefill, for a compression that looks ahead."""

import asyncio
import uuid
from dataclasses import replace

from ragkv.engine.protocol import Engine, Generate, Prefill, PrefillChunk

LOOKAHEAD = 16
"""Tokens that are decoded behind each chunk."""


async def looked_ahead(engine: Engine, prefill: Prefill) -> Prefill:
    """The prefill with its cue, and what the engine decodes behind it, behind each chunk."""
    if not prefill.cue_ids:
        return prefill

    async def behind(chunk: PrefillChunk) -> PrefillChunk:
        ids = (*prefill.prefix_ids, *chunk.token_ids, *prefill.cue_ids)
        request = Generate(ids, uuid.uuid4().hex, max_tokens=LOOKAHEAD, ignore_eos=True)
        decoded = [token async for output in engine.generate(request) for token in output.token_ids]
        return replace(chunk, behind=(*prefill.cue_ids, *decoded), decoded=len(decoded))

    return replace(prefill, chunks=tuple(await asyncio.gather(*map(behind, prefill.chunks))), cue_ids=())
