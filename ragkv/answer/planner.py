"""From a prompt and the KV that is there to a stitch plan."""

import hashlib
from collections.abc import Sequence

import torch

from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.chunk import Chunk, Passage
from ragkv.kv.key import KeyMaker
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
        them. The first chunk stands where it was prefilled: its KV is exact if the plain model wrote it, and no policy
        spends tokens on it (EPIC does likewise, arXiv 2410.15332). None for one chunk that a writer wrote: full prefill
        costs no more than repairing it. KV of the writer before serves where the present one's is not there yet.
        """
        stored = [self.stored(passage.chunk, keys) for passage in passages]
        writer = _writer_of([writer for writer, _ in stored])
        if writer and len(passages) == 1:
            return None
        placed = [PlacedChunk(keys.prefix(), prompt.prefix)]
        placed += [PlacedChunk(key, span) for (_, key), span in zip(stored, prompt.chunks, strict=True)]
        missing = frozenset(chunk.key for chunk in placed if chunk.key is None or chunk.key not in self._store)
        context = total_tokens(prompt.chunks)
        budget = recompute.budget(context)
        if budget >= context:
            return plan_stitch(placed, missing, prompt.chunks, writer=writer)
        if POLICIES[recompute.policy].in_engine:
            selection = EngineSelection(
                recompute.policy, budget / context, recompute.block_size, _topic(prompt), self._choice
            )
            return plan_stitch(placed, missing, (), selection if budget else None, writer)
        evidence = self._evidence(placed[1:], passages, recompute, question)
        if not writer and placed[1:] and placed[1].key not in missing:
            evidence = evidence.without_first()
        selected = SELECTORS[recompute.policy](evidence, budget) if budget else ()
        return plan_stitch(placed, missing, selected, writer=writer)

    def stored(self, chunk: Chunk, keys: KeyMaker) -> tuple[str, str]:
        """Writer and key of the chunk's KV: the present writer's unless only that of the one before is there."""
        key = keys.chunk(chunk.token_ids)
        if keys.writer_before is not None and key not in self._store:
            before = keys.chunk(chunk.token_ids, keys.writer_before)
            if before in self._store:
                return keys.writer_before, before
        return keys.writer, key

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


def _writer_of(writers: Sequence[str]) -> str:
    """Names the writer of all chunks, or which one wrote which; empty if the plain model wrote all."""
    if len(set(writers)) == 1:
        return writers[0]
    return hashlib.sha256("|".join(writers).encode()).hexdigest() if writers else ""


def _topic(prompt: Prompt) -> str:
    """Names the question as it stands in the prompt: what a policy in the engine may have looked at."""
    asked = prompt.token_ids[prompt.question.start : prompt.question.end]
    return hashlib.sha256(repr(asked).encode()).hexdigest()
