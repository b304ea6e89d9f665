"""From a prompt and the available KV to a stitch plan, and the vectors of its question that some policies look at."""

import hashlib
import uuid
from collections.abc import Sequence
from functools import partial

import torch

from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Passage
from ragkv.engine.protocol import Engine, Generate
from ragkv.engine.wire import unpack_queries
from ragkv.errors import Unavailable
from ragkv.kv.file import name_of_kept
from ragkv.kv.format import QCACHE_BLOCK
from ragkv.kv.key import KeyMaker
from ragkv.kv.store import KVStore
from ragkv.span import Span, total_tokens
from ragkv.stitch.located import LocatedKV, LocatedPassage, RemoteSizes, locate
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan, plan_stitch
from ragkv.stitch.policies import DEFAULT_CHOICE, POLICIES, Choice
from ragkv.stitch.select import SELECTORS, ChunkEvidence, Evidence
from ragkv.threads import RecentlyUsed, Threads

_KEPT = 64
"""Questions whose vectors are kept: up to a megabyte each with a large model."""


class Planner:
    """Looks up KV, and lets the policy select what of it is recomputed. Reads files, computes nothing."""

    def __init__(
        self,
        store: KVStore,
        choice: Choice = DEFAULT_CHOICE,
        remote_sizes: RemoteSizes | None = None,
        *,
        has_window: bool = False,
    ) -> None:
        """choice: the layers that select in the engine. remote_sizes: where there is an object store. has_window:
        layers of the model have a sliding window."""
        self._store = store
        self._has_window = has_window
        self._choice = choice
        self._remote_sizes = remote_sizes

    def locate(self, passages: Sequence[Passage], keys: KeyMaker) -> LocatedKV:
        return locate(passages, keys, self._store, self._remote_sizes)

    def plan(
        self, prompt: Prompt, located: LocatedKV, recompute: Recompute, question: torch.Tensor | None
    ) -> StitchPlan | None:
        """The plan of a prompt that holds the chunks of these passages as they were laid out, in this order.

        question: the question's initial vectors, [q_layers, q_heads, head_dim] float32, needed by policies that look at
        them. The first chunk stands where it was prefilled: its KV is exact if the plain model wrote it and no token of
        it is left out, to within quantisation, and no policy spends tokens on it then (EPIC does likewise, arXiv
        2410.15332). None for one chunk that a writer wrote: full prefill costs no more than repairing it. KV of the
        writer before, or in another format, serves where the present one's is not there yet.
        """
        if located.is_written_alone:
            return None
        passages = located.passages
        writer = _name_of([passage.making.writer for passage in passages])
        quantised = _name_of([passage.making.format_name for passage in passages])
        placed = [PlacedChunk(located.prefix, prompt.prefix)]
        placed += [
            PlacedChunk(passage.key, span, name_of_kept(passage.offsets))
            for passage, span in zip(passages, prompt.chunks, strict=True)
        ]
        stitched = partial(
            plan_stitch,
            placed,
            located.missing,
            writer=writer,
            quantised=quantised,
            model=located.keys.model,
            has_window=self._has_window,
        )
        context = total_tokens(prompt.chunks)
        budget = recompute.budget(context)
        if budget >= context:
            return stitched(prompt.chunks)
        if POLICIES[recompute.policy].in_engine:
            # What a policy in the engine may have looked at: the question as it stands in the prompt.
            question_ids = prompt.token_ids[prompt.question.start : prompt.question.end]
            topic = hashlib.sha256(repr(question_ids).encode()).hexdigest()
            selection = EngineSelection(recompute.policy, budget / context, recompute.block_size, topic, self._choice)
            return stitched((), selection if budget else None)
        looks = POLICIES[recompute.policy].needs_question_vectors
        is_first_exact = not writer and passages and not passages[0].absent and not passages[0].offsets
        places = list(zip(passages, prompt.chunks, strict=True))[1 if is_first_exact else 0 :]
        chunks = tuple(self._evidence_of(passage, span, with_vectors=looks) for passage, span in places)
        evidence = Evidence(chunks, question, recompute.block_size)
        return stitched(SELECTORS[recompute.policy](evidence, budget) if budget else ())

    def _evidence_of(self, located: LocatedPassage, span: Span, *, with_vectors: bool) -> ChunkEvidence:
        qcache = self._store.qcache(located.key) if with_vectors else None
        blocks = -(-span.num_tokens // QCACHE_BLOCK)  # another file's may be in its place
        views = (qcache.local, qcache.mean_keys) if qcache and len(qcache.mean_keys) == blocks else (None, None)
        return ChunkEvidence(span, located.passage.score, *views)


def lay_out(located: LocatedKV, recompute: Recompute) -> LocatedKV:
    """The passages as the prompt of a stitched answer holds them.

    Of a compressed chunk it holds the tokens whose KV is there; of any other, also one whose KV is missing, all. Where
    everything is recomputed, and where nothing is stitched, no token is left out: that answer is full prefill's.
    """
    context = located.num_tokens
    return located.whole() if located.is_written_alone or recompute.budget(context) >= context else located


def _name_of(names: Sequence[str]) -> str:
    """The name that all chunks have, or one for which chunk has which; empty if none has any."""
    if len(set(names)) == 1:
        return names[0]
    return hashlib.sha256("|".join(names).encode()).hexdigest() if names else ""


class QuestionVectors:
    """Asks the engine for a question's vectors, and keeps those of the latest questions."""

    def __init__(self, engine: Engine, prompts: PromptBuilder, threads: Threads) -> None:
        self._engine = engine
        self._prompts = prompts
        self._threads = threads
        self._held = RecentlyUsed[tuple[str, str], list[torch.Tensor]](list, _KEPT)

    async def of(self, question: str, keys: KeyMaker) -> torch.Tensor:
        """[q_layers, q_heads, head_dim] float32. Needs no document, so it runs beside retrieval."""
        held = self._held.of((keys.prefix(), question))
        if not held:
            question_ids = await self._threads.run(self._prompts.question_ids, question)
            report = None
            async for output in self._engine.generate(behind_prefix(self._prompts.prefix_ids, question_ids, keys)):
                report = output.report
            if report is None or report.queries is None:
                raise Unavailable(
                    "the engine returned no query vectors: use a policy that needs none, such as question or head"
                )
            held[:] = [unpack_queries(report.queries)]
        return held[0]


def behind_prefix(prefix_ids: Sequence[int], question_ids: Sequence[int], keys: KeyMaker) -> Generate:
    """A request that runs a question behind the prefix alone and reports its queries."""
    ids = (*prefix_ids, *question_ids)
    question = Span(len(prefix_ids), len(ids))
    placed = PlacedChunk(keys.prefix(), Span(0, question.start)), PlacedChunk(None, question)
    plan = StitchPlan(placed, model=keys.model)
    # A salt of its own: tokens found in the prefix cache would not run, and show no queries.
    return Generate(ids, uuid.uuid4().hex, plan, max_tokens=1, ignore_eos=True, capture=question)
