"""The answer to a question: retrieve, build the prompt, plan, generate, cite."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from ragkv.answer.cite import cite
from ragkv.answer.history import question_in_prompt, search_query
from ragkv.answer.incoming import AwaitedKV
from ragkv.answer.limits import check_question
from ragkv.answer.observed import generation, observed, retrieval
from ragkv.answer.origins import kv_of_passages, prompt_spans
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.question import Answer, Delta, Question, Timings, Usage
from ragkv.answer.question_vectors import QuestionVectors
from ragkv.answer.recompute import Recomputing
from ragkv.answer.search import Searcher
from ragkv.answer.trimmed import Trimmed
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Engine, Generate, Report
from ragkv.errors import NotFound, RagKVError, TooLarge, Unavailable
from ragkv.kv.key import KeyMaker
from ragkv.observe import traces
from ragkv.policies import POLICIES
from ragkv.settings import PassageOrder
from ragkv.stitch.plan import EXACT, StitchPlan
from ragkv.stitch.select import budget_of
from ragkv.threads import Threads

NOTHING = "nothing to search: the collection has no searchable document; upload one first"
NOTHING_CHOSEN = "nothing to search: no searchable document matches the filter; loosen it, or upload one"

THREADS = 4
"""For all questions of a process. More would only take the interpreter from each other, and from the event loop."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question ready for the engine. `passages` stand in the prompt in this order; `omitted` were found too, and are
    not read."""

    prompt: Prompt
    passages: tuple[Passage, ...]
    omitted: tuple[Passage, ...]
    plan: StitchPlan | None
    salt: str
    retrieve_ms: float
    plan_ms: float
    promoted: frozenset[str]
    """Keys of KV that came from the object store for this question."""


class Answerer:
    """Answers questions. One per process; safe for any number of questions at once."""

    def __init__(
        self,
        recomputing: Recomputing,
        searcher: Searcher,
        prompts: PromptBuilder,
        engine: Engine,
        planner: Planner,
        keys_of: Callable[[str, str], KeyMaker],
        journal: Callable[[Question, Answer], None],
        incoming: AwaitedKV,
    ) -> None:
        """keys_of: of a tenant and its collection."""
        self._recomputing = recomputing
        self._settings = recomputing.settings
        self._searcher = searcher
        self._prompts = prompts
        self._engine = engine
        self._planner = planner
        self._keys_of = keys_of
        self._journal = journal
        self._incoming = incoming
        self._answering = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = Threads("answer", THREADS)
        self._question_vectors = QuestionVectors(engine, prompts, self._threads)

    async def until_idle(self) -> None:
        """Return once no question is being answered."""
        await self._idle.wait()

    async def stream(self, question: Question) -> AsyncGenerator[Delta | Answer, None]:
        """Text as it comes, then one Answer. Closing the iterator early stops the generation.

        Raises NotFound for a collection with nothing to search, TooLarge for a question beyond the model's window,
        Unavailable when the engine or the index is away.
        """
        with observed(question) as answered, self._counted():
            began = time.perf_counter()
            prepared = await self.prepare(question)
            request = Generate(
                prepared.prompt.token_ids,
                prepared.salt,
                prepared.plan,
                max_tokens=self._answer_tokens(question),
                session=_session_of(prepared.passages),
            )
            handed_over = time.perf_counter()
            answer_text, tokens, first, last = Trimmed(), 0, None, None
            with generation(request, Path(self._settings.model).name) as generated:
                async with aclosing(self._engine.generate(request)) as outputs:
                    async for output in outputs:
                        generated(output)
                        first = first or time.perf_counter()
                        tokens, last = tokens + len(output.token_ids), output
                        if part := answer_text.add(output.text):
                            yield Delta(part)
            assert first and last and last.finish_reason, "an engine's answer ends with a reason"
            report = last.report or Report()
            answer = Answer(
                id=question.id,
                text=answer_text.text,
                finish_reason=last.finish_reason,
                citations=await self._threads.run(cite, answer_text.text, question.text, prepared.passages),
                passages=prepared.passages,
                timings=_timings(prepared, report, began, handed_over, first),
                usage=_usage(prepared, report, tokens),
                kv=kv_of_passages(prepared.prompt, prepared.plan, report, prepared.promoted),
                prompt_spans=prompt_spans(prepared.prompt, prepared.plan, report),
                omitted_passages=prepared.omitted,
            )
            self._incoming.cost.answered(report, first - handed_over)
            await self._keep_record(question, answer)
            answered(answer)
            yield answer

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._answering += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._answering -= 1
            if not self._answering:
                self._idle.set()

    async def _keep_record(self, question: Question, answer: Answer) -> None:
        """Record the answer. It is delivered whether or not it can be recorded."""
        try:
            await self._threads.run(self._journal, question, answer)
        except RagKVError as error:
            log.warning("an answer was not recorded: %s", error)

    async def check(self, question: Question) -> None:
        """Raise what `stream` would for a question that cannot be answered whatever the engine says."""
        check_question(question)
        await self._threads.run(question_and_room, question, self._prompts, self._answer_tokens(question))
        await self._retrieve(question)

    async def prepare(self, question: Question) -> Prepared:
        """Everything before the engine's turn. The question's vectors are computed while retrieval runs."""
        check_question(question)
        began = time.perf_counter()
        keys = await self._threads.run(self._keys_of, question.tenant_id, question.collection_id)
        asked, room = await self._threads.run(question_and_room, question, self._prompts, self._answer_tokens(question))
        found, vectors = await self._found_with_vectors(question, asked, keys)
        best_first = fitting(found, room)
        retrieved = time.perf_counter()
        read = self._to_read(question, best_first)
        promoted = await self._bring(question, [passage.chunk for passage in read], keys)
        with traces.span("plan"):
            prompt, passages, plan = await self._threads.run(self._planned, question, read, asked, keys, vectors)
        return Prepared(
            prompt=prompt,
            passages=passages,
            omitted=tuple(passage for passage in best_first if passage not in read),
            plan=plan,
            salt=keys.salt(plan.cache_variant if plan else EXACT),
            retrieve_ms=(retrieved - began) * 1e3,
            plan_ms=(time.perf_counter() - retrieved) * 1e3,
            promoted=promoted,
        )

    def _planned(
        self,
        question: Question,
        read: Sequence[Passage],
        asked: str,
        keys: KeyMaker,
        vectors: torch.Tensor | None,
    ) -> tuple[Prompt, tuple[Passage, ...], StitchPlan | None]:
        """The prompt, its passages in its order, and its plan."""
        build = partial(self._prompts.build, question=asked, answer_tokens=self._answer_tokens(question))
        passages = in_prompt_order(read, self._settings.passage_order)
        if question.mode == "full":
            return build([passage.chunk for passage in passages]), passages, None
        planner = self._planner
        written = planner.is_written(read, keys)
        recompute = self._recomputing.of(question, written=written, with_vectors=vectors is not None)
        laid_out = planner.lay_out(passages, keys, recompute)
        prompt = build([one.chunk for one in laid_out])
        return prompt, passages, planner.plan(prompt, passages, keys, recompute, vectors, laid_out)

    async def _bring(self, question: Question, chunks: Sequence[Chunk], keys: KeyMaker) -> frozenset[str]:
        """Have the KV of these chunks on disk, as far as it is quick enough. Keys of what came from the object
        store."""
        if question.mode == "full":
            return frozenset()
        context = sum(chunk.num_tokens for chunk in chunks)
        written = bool(keys.writer) and keys.compression is None
        repaired = self._recomputing.of(question, written=written).budget(context) / context
        return await self._incoming.bring(chunks, keys, repaired)

    async def _found_with_vectors(
        self, question: Question, asked: str, keys: KeyMaker
    ) -> tuple[list[Passage], torch.Tensor | None]:
        """The passages and the question's vectors, at the same time. If one fails the other ends."""
        finding = asyncio.create_task(self._retrieve(question))
        computing = asyncio.create_task(self._vectors(question, asked, keys))
        try:
            return await asyncio.gather(finding, computing)
        finally:
            finding.cancel()
            computing.cancel()

    async def _retrieve(self, question: Question) -> list[Passage]:
        place, limits = (
            (question.tenant_id, question.collection_id),
            (question.top_k or self._settings.top_k, question.hops or self._settings.hops),
        )
        with retrieval(question, *limits) as span:
            passages = await self._searcher.search(*place, search_query(question), *limits, question.document_ids)
            span.set_attribute("ragkv.passages", len(passages))
        if not passages:
            raise NotFound(NOTHING if question.document_ids is None else NOTHING_CHOSEN)
        return passages

    async def _vectors(self, question: Question, asked: str, keys: KeyMaker) -> torch.Tensor | None:
        wanted = POLICIES[self._recomputing.policy(question)].needs_question_vectors
        if question.mode == "full" or not wanted:
            return None
        with traces.span("question vectors"):
            try:
                return await self._question_vectors.of(asked, keys)
            except Unavailable as error:  # the engine's report may be lost alone
                log.warning("what is recomputed is selected without the question's vectors: %s", error)
                return None

    def _to_read(self, question: Question, best_first: Sequence[Passage]) -> Sequence[Passage]:
        """The passages that the prompt holds: all where everything is recomputed, for that answer is full prefill's."""
        share = self._settings.sparse_ratio if question.sparse_ratio is None else question.sparse_ratio
        context = sum(passage.chunk.num_tokens for passage in best_first)
        full = question.mode == "full" or self._recomputing.of(question, written=False).budget(context) >= context
        return best_first if full or share >= 1 else within_share(best_first, share)

    def _answer_tokens(self, question: Question) -> int:
        return question.max_tokens or self._settings.max_answer_tokens


def question_and_room(question: Question, prompts: PromptBuilder, answer_tokens: int) -> tuple[str, int]:
    """Text of the prompt behind the passages, and the number of tokens left for them. Raises TooLarge.

    The conversation takes half of the room that there is without it at most: it must not push the passages out.
    """
    alone = question_in_prompt(replace(question, history=()))
    room = prompts.room_for_chunks(alone, answer_tokens)
    if not question.history:
        return alone, room
    most = len(prompts.question_ids(alone)) + room // 2
    asked = question_in_prompt(question, lambda text: len(prompts.question_ids(text)) <= most)
    return asked, prompts.room_for_chunks(asked, answer_tokens)


def fitting(passages: Sequence[Passage], room: int) -> list[Passage]:
    """The best passages that fit `room` tokens together, best first.

    Raises TooLarge if there is room for none: an answer without passages would be made up.
    """
    kept = _within(passages, room)
    if not kept:
        raise TooLarge(
            f"the question and its answer leave room for only {room} tokens, too few for a passage: lower max_tokens"
        )
    return kept


def within_share(best_first: Sequence[Passage], share: float) -> list[Passage]:
    """The best passages that fit a share of the tokens of all together, best first, and the best in any case."""
    first, *others = best_first
    left = budget_of(share, sum(passage.chunk.num_tokens for passage in best_first)) - first.chunk.num_tokens
    return [first, *_within(others, left)]


def _within(passages: Sequence[Passage], room: int) -> list[Passage]:
    left = room
    kept: list[Passage] = []
    for passage in passages:
        if passage.chunk.num_tokens <= left:
            kept.append(passage)
            left -= passage.chunk.num_tokens
    return kept


def in_prompt_order(best_first: Sequence[Passage], order: PassageOrder) -> tuple[Passage, ...]:
    """The passages in the order of the prompt. Which order suits a model is measured (docs/BENCHMARKS.md)."""
    return tuple(reversed(best_first)) if order == "best_last" else tuple(best_first)


def _session_of(passages: Sequence[Passage]) -> str:
    """A name of the passages, whatever their order: the same for every question about them."""
    ids = sorted(passage.chunk.id for passage in passages)
    return hashlib.blake2b("\n".join(ids).encode(), digest_size=16).hexdigest()


def _timings(prepared: Prepared, report: Report, began: float, handed_over: float, first: float) -> Timings:
    return Timings(
        retrieve_ms=prepared.retrieve_ms,
        plan_ms=prepared.plan_ms,
        ttft_ms=(first - began) * 1e3,
        engine_ttft_ms=(first - handed_over) * 1e3,
        kv_load_ms=report.kv_load_ms,
        recompute_ms=report.recompute_ms,
        total_ms=(time.perf_counter() - began) * 1e3,
    )


def _usage(prepared: Prepared, report: Report, completion: int) -> Usage:
    return Usage(
        prompt=len(prepared.prompt.token_ids),
        cached=report.cached,
        stitched=report.stitched,
        recomputed=report.recomputed,
        computed=report.computed,
        completion=completion,
        failed_chunks=prepared.plan.num_without_kv(report.failed_keys) if prepared.plan else 0,
    )
