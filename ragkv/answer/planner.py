"""From a prompt and the KV that is there to a stitch plan."""

import hashlib
from collections.abc import Sequence

import torch

from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.chunk import Chunk, Passage
from ragkv.kv.key import KeyMaker, Making
from ragkv.kv.store import KVStore
from ragkv.policies import POLICIES
from ragkv.span import total_tokens
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan, plan_stitch
from ragkv.stitch.select import SELECTORS, ChunkEvidence, Evidence


class Planner:
    """Looks up what KV there is and lets the policy choose. Reads files, computes nothing."""

    def __init__(self, store: KVStore, choice: Choice = DEFAULT_CHOICE) -> None:
        """choice: the layers that select in the engine."""
        self._store = store
        self._choice = choice

    def plan(
        self,
        prompt: Prompt,
        passages: Sequence[Passage],
        keys: KeyMaker,
        recompute: Recompute,
        question: torch.Tensor | None,
    ) -> StitchPlan | None:
        """The plan of a prompt whose chunks are these passages, in this order.

        question: the question's initial vectors, [q_layers, q_heads, head_dim] float32, needed by policies that look at
        them. The first chunk stands where it was prefilled: its KV is exact if the plain model wrote it, to within
        quantisation, and no policy spends tokens on it then (EPIC does likewise, arXiv 2410.15332). None for one chunk
        that a writer wrote: full prefill costs no more than repairing it. KV of the writer before, or in another
        format, serves where the present one's is not there yet.
        """
        stored = [self.stored(passage.chunk, keys) for passage in passages]
        if len(passages) == 1 and stored[0][0].writer:
            return None
        writer = _name_of([making.writer for making, _ in stored])
        quantised = _name_of([making.format_name for making, _ in stored])
        placed = [PlacedChunk(keys.prefix(), prompt.prefix)]
        placed += [PlacedChunk(key, span) for (_, key), span in zip(stored, prompt.chunks, strict=True)]
        missing = frozenset(chunk.key for chunk in placed if chunk.key is None or chunk.key not in self._store)
        context = total_tokens(prompt.chunks)
        budget = recompute.budget(context)
        if budget >= context:
            return plan_stitch(placed, missing, prompt.chunks, None, writer, quantised)
        if POLICIES[recompute.policy].in_engine:
            selection = EngineSelection(
                recompute.policy, budget / context, recompute.block_size, _topic(prompt), self._choice
            )
            return plan_stitch(placed, missing, (), selection if budget else None, writer, quantised)
        evidence = self._evidence(placed[1:], passages, recompute, question)
        if not writer and placed[1:] and placed[1].key not in missing:
            evidence = evidence.without_first()
        selected = SELECTORS[recompute.policy](evidence, budget) if budget else ()
        return plan_stitch(placed, missing, selected, None, writer, quantised)

    def stored(self, chunk: Chunk, keys: KeyMaker) -> tuple[Making, str]:
        """Making and key of the chunk's KV: the first that is there, or else the present one."""
        for making in keys.makings:
            if (key := keys.chunk(chunk.token_ids, making)) in self._store:
                return making, key
        return keys.makings[0], keys.chunk(chunk.token_ids)

    def _evidence(
        self,
        placed: Sequence[PlacedChunk],
        passages: Sequence[Passage],
        recompute: Recompute,
        question: torch.Tensor | None,
    ) -> Evidence:
        wanted = POLICIES[recompute.policy].needs_question_vectors
        chunks = []
        for chunk, passage in zip(placed, passages, strict=True):
            kept = self._store.qcache(chunk.key) if wanted and chunk.key else None
            views = (kept.local, kept.mean_keys) if kept else (None, None)
            chunks.append(ChunkEvidence(chunk.span, passage.score, *views))
        return Evidence(tuple(chunks), question, recompute.block_size)


def _name_of(names: Sequence[str]) -> str:
    """The name that all chunks have, or one for which chunk has which; empty if none has any."""
    if len(set(names)) == 1:
        return names[0]
    return hashlib.sha256("|".join(names).encode()).hexdigest() if names else ""


def _topic(prompt: Prompt) -> str:
    """Names the question as it stands in the prompt: what a policy in the engine may have looked at."""
    asked = prompt.token_ids[prompt.question.start : prompt.question.end]
    return hashlib.sha256(repr(asked).encode()).hexdigest()
