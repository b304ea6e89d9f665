"""From a prompt and the available KV to a stitch plan."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.chunk import Chunk, Passage
from ragkv.kv.file import name_of_kept
from ragkv.kv.key import KeyMaker, Making
from ragkv.kv.store import KVStore
from ragkv.kv_format import QCACHE_BLOCK
from ragkv.policies import POLICIES
from ragkv.span import Span, total_tokens
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan, plan_stitch
from ragkv.stitch.select import SELECTORS, ChunkEvidence, Evidence


@dataclass(frozen=True, slots=True)
class Stored:
    """Making and key of a chunk's KV, whether or not it is there, and the chunk as a prompt holds it.

    kept: names the tokens that a compressed chunk has left (`name_of_kept`), which are then those of `chunk`; empty for
    a whole one.
    """

    chunk: Chunk
    making: Making
    key: str
    kept: str = ""


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
        laid_out: Sequence[Stored] | None = None,
    ) -> StitchPlan | None:
        """The plan of a prompt whose chunks are these passages, in this order.

        question: the question's initial vectors, [q_layers, q_heads, head_dim] float32, needed by policies that look at
        them. laid_out: what `lay_out` gave for these passages, whose chunks the prompt has; None: it has whole ones.
        The first chunk stands where it was prefilled: its KV is exact if the plain model wrote it and no token of it is
        left out, to within quantisation, and no policy spends tokens on it then (EPIC does likewise, arXiv 2410.15332).
        None for one chunk that a writer wrote: full prefill costs no more than repairing it. KV of the writer before,
        or in another format, serves where the present one's is not there yet.
        """
        stored = laid_out
        if stored is None:
            whole = replace(keys, compression=None)
            stored = [self.stored(passage.chunk, whole) for passage in passages]
        if _is_written_alone(stored):
            return None
        writer = _name_of([one.making.writer for one in stored])
        quantised = _name_of([one.making.format_name for one in stored])
        placed = [PlacedChunk(keys.prefix(), prompt.prefix)]
        placed += [PlacedChunk(one.key, span, one.kept) for one, span in zip(stored, prompt.chunks, strict=True)]
        missing = frozenset(chunk.key for chunk in placed if chunk.key is None or chunk.key not in self._store)
        stitched = partial(plan_stitch, placed, missing, writer=writer, quantised=quantised, model=keys.model)
        context = total_tokens(prompt.chunks)
        budget = recompute.budget(context)
        if budget >= context:
            return stitched(prompt.chunks)
        if POLICIES[recompute.policy].in_engine:
            selection = EngineSelection(
                recompute.policy, budget / context, recompute.block_size, _topic(prompt), self._choice
            )
            return stitched((), selection if budget else None)
        evidence = self._evidence(placed[1:], passages, recompute, question)
        if not writer and placed[1:] and placed[1].key not in missing and not placed[1].kept:
            evidence = evidence.without_first()
        return stitched(SELECTORS[recompute.policy](evidence, budget) if budget else ())

    def lay_out(self, passages: Sequence[Passage], keys: KeyMaker, recompute: Recompute) -> tuple[Stored, ...]:
        """The chunks of these passages as the prompt of a stitched answer holds them.

        Of a compressed chunk it holds the tokens whose KV is there; of any other, also one whose KV is missing, all.
        Where everything is recomputed, and where nothing is stitched, no token is left out: that answer is full
        prefill's.
        """
        stored = tuple(self.stored(passage.chunk, keys) for passage in passages)
        context = sum(passage.chunk.num_tokens for passage in passages)
        if recompute.budget(context) < context and not _is_written_alone(stored):
            return stored
        return tuple(replace(one, chunk=passage.chunk, kept="") for one, passage in zip(stored, passages, strict=True))

    def is_written(self, passages: Sequence[Passage], keys: KeyMaker) -> bool:
        """Whether the writer in use made all KV of these passages that is there, and of all their tokens."""
        makings = (self.stored(passage.chunk, keys).making for passage in passages)
        return bool(keys.writer) and all(
            making.writer == keys.writer and making.compression is None for making in makings
        )

    def stored(self, chunk: Chunk, keys: KeyMaker) -> Stored:
        """The chunk's KV: the first that is there, or else the present one, with all tokens of the chunk."""
        for making in keys.makings:
            if (key := keys.chunk(chunk.token_ids, making)) in self._store:
                if making.compression is None:
                    return Stored(chunk, making, key)
                kept = self._store.kept(key)
                if kept and kept[-1] < chunk.num_tokens:
                    return Stored(chunk.shortened_to(kept), making, key, name_of_kept(kept))
        return Stored(chunk, keys.makings[0], keys.chunk(chunk.token_ids))

    def _evidence(
        self,
        placed: Sequence[PlacedChunk],
        passages: Sequence[Passage],
        recompute: Recompute,
        question: torch.Tensor | None,
    ) -> Evidence:
        wanted = POLICIES[recompute.policy].needs_question_vectors
        chunks = (
            self._evidence_of(chunk.key if wanted else None, chunk.span, passage)
            for chunk, passage in zip(placed, passages, strict=True)
        )
        return Evidence(tuple(chunks), question, recompute.block_size)

    def _evidence_of(self, key: str | None, span: Span, passage: Passage) -> ChunkEvidence:
        kept = self._store.qcache(key) if key else None
        blocks = -(-span.num_tokens // QCACHE_BLOCK)  # another file's may be in its place
        views = (kept.local, kept.mean_keys) if kept and len(kept.mean_keys) == blocks else (None, None)
        return ChunkEvidence(span, passage.score, *views)


def _is_written_alone(stored: Sequence[Stored]) -> bool:
    """Whether a writer wrote the one chunk: full prefill costs no more than repairing it."""
    return len(stored) == 1 and bool(stored[0].making.writer)


def _name_of(names: Sequence[str]) -> str:
    """The name that all chunks have, or one for which chunk has which; empty if none has any."""
    if len(set(names)) == 1:
        return names[0]
    return hashlib.sha256("|".join(names).encode()).hexdigest() if names else ""


def _topic(prompt: Prompt) -> str:
    """Names the question as it stands in the prompt: what a policy in the engine may have looked at."""
    asked = prompt.token_ids[prompt.question.start : prompt.question.end]
    return hashlib.sha256(repr(asked).encode()).hexdigest()
