"""The answer to a question: retrieve, build the prompt, plan, generate, cite."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ragkv.answer.cite import cite
from ragkv.answer.history import messages_of, question_and_room, referred_to
from ragkv.answer.incoming import IncomingKV
from ragkv.answer.observed import generation, observed, retrieval
from ragkv.answer.origins import kv_of_passages, prompt_spans
from ragkv.answer.planner import Planner, QuestionVectors, lay_out
from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.question import NOTHING_RAN, ORIGINS, Answer, Delta, Question, Timings, Usage, check_question
from ragkv.answer.recompute import Recompute, Recomputing
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Engine, Generate, Report
from ragkv.errors import NotFound, RagKVError, TooLarge, Unavailable
from ragkv.kv.key import KeyMaker
from ragkv.observe import traces
from ragkv.retrieve.retriever import Searcher
from ragkv.settings import PassageOrder
from ragkv.stitch.located import LocatedKV
from ragkv.stitch.plan import EXACT, StitchPlan
from ragkv.stitch.policies import POLICIES
from ragkv.stitch.select import budget_of
from ragkv.text import plural
from ragkv.threads import P, T, Threads

NOTHING = "There is nothing to answer from: this collection has no searchable document; upload one, or ask another."
NOTHING_CHOSEN = "There is nothing to answer from: no searchable document matches the filter; loosen it, or upload one."
NOTHING_RELEVANT = "There is nothing to answer from: no passage reaches the score threshold; lower it, or upload one."
_CROWDED = "max_tokens leaves no room in the model's window for {} found: lower it"

THREADS = 4
"""For all questions of a process. More would only take the interpreter from each other, and from the event loop."""
LOOK_UP_S = 10.0
"""Time in which the KV of a question is looked for: as long as its files may be read (`connector.under_way`)."""

log = logging.getLogger(__name__)


class NothingFound(NotFound):
    """No passage to answer from."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question ready for the engine. `passages` stand in the prompt in this order; `omitted` were retrieved too, and
    are not read. `warnings`: the question's, and one for passages that do not fit beside so long an answer."""

    prompt: Prompt
    passages: tuple[Passage, ...]
    omitted: tuple[Passage, ...]
    plan: StitchPlan | None
    salt: str
    retrieve_ms: float
    plan_ms: float
    promoted: frozenset[str]
    """Keys of KV that came from the object store for this question."""
    warnings: tuple[str, ...]


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
        incoming: IncomingKV,
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
        self._lookups = Threads("KV look-up", THREADS)
        self._question_vectors = QuestionVectors(engine, prompts, self._threads)

    async def until_idle(self) -> None:
        """Return once no question is being answered."""
        await self._idle.wait()

    async def stream(self, question: Question) -> AsyncGenerator[Delta | Answer, None]:
        """Text as it comes, then one Answer, which says so where there is nothing to answer from. Closing the iterator
        early stops the generation.

        Raises TooLarge for a question beyond the model's window, Unavailable when the engine or the index is away.
        """
        began = time.perf_counter()
        try:
            async with aclosing(self._generated(question)) as events:
                async for event in events:
                    yield event
        except NothingFound as nothing:
            text = str(nothing)
            yield Delta(text)
            timings = Timings.without_model((time.perf_counter() - began) * 1e3)
            yield Answer(question.id, text, "stop", (), (), timings, NOTHING_RAN, warnings=question.warnings)

    async def _generated(self, question: Question) -> AsyncGenerator[Delta | Answer, None]:
        with observed(question) as answered, self._counted():
            began = time.perf_counter()
            prepared = await self.prepare(question)
            chunk_ids = "\n".join(sorted(passage.chunk.id for passage in prepared.passages))
            request = Generate(
                prepared.prompt.token_ids,
                prepared.salt,
                prepared.plan,
                max_tokens=self._answer_tokens(question),
                sampling=question.sampling,
                session=hashlib.blake2b(chunk_ids.encode(), digest_size=16).hexdigest(),
            )
            handed_over = time.perf_counter()
            answer_text, tokens, first_at, last = Trimmed(), 0, None, None
            with generation(request, Path(self._settings.model).name) as generated:
                async with aclosing(self._engine.generate(request)) as outputs:
                    async for output in outputs:
                        generated(output)
                        first_at = first_at or time.perf_counter()
                        tokens, last = tokens + len(output.token_ids), output
                        if part := answer_text.add(output.text):
                            yield Delta(part)
            assert first_at and last and last.finish_reason, "an engine's answer ends with a reason"
            report = last.report or Report()
            answer = Answer(
                id=question.id,
                text=answer_text.text,
                finish_reason=last.finish_reason,
                citations=await self._threads.run(
                    cite, answer_text.text, question.text, prepared.passages, is_cut=last.finish_reason == "length"
                ),
                passages=prepared.passages,
                timings=_timings(prepared, report, began, handed_over, first_at),
                usage=_usage(prepared, report, tokens),
                kv=kv_of_passages(prepared.prompt, prepared.plan, report, prepared.promoted),
                prompt_spans=prompt_spans(prepared.prompt, prepared.plan, report),
                omitted_passages=prepared.omitted,
                warnings=prepared.warnings,
            )
            self._incoming.cost.answered(report, first_at - handed_over)
            try:  # it is delivered whether or not it can be recorded
                await self._threads.run(self._journal, question, answer)
            except RagKVError as error:
                log.warning("an answer was not recorded: %s", error)
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

    async def check(self, question: Question) -> None:
        """Raise what `stream` would for a question that cannot be answered whatever the engine says, and NothingFound
        for one without passages."""
        check_question(question)
        await self._threads.run(question_and_room, question, self._prompts, self._answer_tokens(question))
        await self._retrieve(question)

    async def prepare(self, question: Question) -> Prepared:
        """Everything before the engine's turn. The question's vectors are computed while retrieval runs. Raises
        NothingFound."""
        check_question(question)
        began = time.perf_counter()
        answer_tokens = self._answer_tokens(question)
        keys = await self._threads.run(self._keys_of, question.tenant_id, question.collection_id)
        if not question.retrieval:
            prompt = await self._threads.run(self._prompts.conversation, messages_of(question), answer_tokens)
            plan_ms = (time.perf_counter() - began) * 1e3
            return Prepared(prompt, (), (), None, keys.salt(EXACT), 0.0, plan_ms, frozenset(), question.warnings)
        text, room = await self._threads.run(question_and_room, question, self._prompts, answer_tokens)
        retrieved, vectors = await self._passages_and_vectors(question, text, keys)
        best_first = fitting(retrieved, room)
        freed = max(0, answer_tokens - self._settings.max_answer_tokens)  # by an answer of the default length
        unfit = len(fitting(retrieved, room + freed)) - len(best_first)
        crowded = [_CROWDED.format(plural(unfit, "passage"))] if unfit else []
        retrieve_s = time.perf_counter() - began
        recompute = self._recomputing.of(question, with_vectors=vectors is not None)
        passages = in_prompt_order(self._to_read(question, best_first, recompute), self._settings.passage_order)
        build = partial(self._prompts.build, question=text, answer_tokens=answer_tokens)
        located = None if question.mode == "full" else await self._locate(passages, keys, recompute)
        with traces.span("plan"):
            planned = None
            if located is not None:
                planned = await self._looked_up(self._planned, build, located, recompute, vectors)
            if planned is None:
                planned = await self._threads.run(build, [passage.chunk for passage in passages]), None
        prompt, plan = planned
        return Prepared(
            prompt=prompt,
            passages=passages,
            omitted=tuple(passage for passage in retrieved if passage not in passages),
            plan=plan,
            salt=keys.salt(plan.cache_variant if plan else EXACT),
            retrieve_ms=retrieve_s * 1e3,
            plan_ms=(time.perf_counter() - began - retrieve_s) * 1e3,
            promoted=located.promoted if located else frozenset(),
            warnings=(*question.warnings, *crowded),
        )

    async def _looked_up(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of what looks at KV's disk. None where that hangs: the prompt is prefilled then."""
        try:
            async with asyncio.timeout(LOOK_UP_S):
                return await self._lookups.run(work, *args, **kwargs)
        except TimeoutError:
            log.warning("KV is not used: its disk has not answered for %.0f s", LOOK_UP_S)
            return None

    async def _locate(self, passages: Sequence[Passage], keys: KeyMaker, recompute: Recompute) -> LocatedKV | None:
        """The KV of these passages, on disk as far as it came quickly enough. None where the disk hangs."""
        located = await self._looked_up(self._planner.locate, passages, keys)
        if located is None:
            return None
        context = located.num_tokens
        repaired = recompute.for_kv(written=located.is_written).budget(context) / context
        return await self._incoming.bring(located, repaired)

    def _planned(
        self,
        build: Callable[[Sequence[Chunk]], Prompt],
        located: LocatedKV,
        recompute: Recompute,
        vectors: torch.Tensor | None,
    ) -> tuple[Prompt, StitchPlan | None]:
        recompute = recompute.for_kv(written=located.is_written)
        located = lay_out(located, recompute)
        prompt = build([passage.chunk for passage in located.passages])
        return prompt, self._planner.plan(prompt, located, recompute, vectors)

    async def _passages_and_vectors(
        self, question: Question, text: str, keys: KeyMaker
    ) -> tuple[list[Passage], torch.Tensor | None]:
        """The passages and the question's vectors, at the same time. If one fails the other ends."""
        retrieving = asyncio.create_task(self._retrieve(question))
        computing = asyncio.create_task(self._vectors(question, text, keys))
        try:
            return await asyncio.gather(retrieving, computing)
        finally:
            retrieving.cancel()
            computing.cancel()

    async def _retrieve(self, question: Question) -> list[Passage]:
        place = question.tenant_id, question.collection_id
        limits = question.top_k or self._settings.top_k, question.hops or self._settings.hops
        with retrieval(question, *limits) as span:
            passages = await self._searcher.search(
                *place, question.text, *limits, question.document_ids, referred_to(question)
            )
            span.set_attribute("ragkv.passages", len(passages))
        if not passages:
            raise NothingFound(NOTHING if question.document_ids is None else NOTHING_CHOSEN)
        relevant = [passage for passage in passages if passage.relevance >= question.relevance_threshold]
        if not relevant:
            raise NothingFound(NOTHING_RELEVANT)
        return relevant

    async def _vectors(self, question: Question, text: str, keys: KeyMaker) -> torch.Tensor | None:
        if question.mode == "full" or not POLICIES[self._recomputing.policy(question)].needs_question_vectors:
            return None
        with traces.span("question vectors"):
            try:
                return await self._question_vectors.of(text, keys)
            except Unavailable as error:  # the engine's report may be lost alone
                log.warning("what is recomputed is selected without the question's vectors: %s", error)
                return None

    def _to_read(self, question: Question, best_first: Sequence[Passage], recompute: Recompute) -> Sequence[Passage]:
        """The passages that the prompt holds: all where everything is recomputed, for that answer is full prefill's."""
        share = self._settings.sparse_ratio if question.sparse_ratio is None else question.sparse_ratio
        context = sum(passage.chunk.num_tokens for passage in best_first)
        is_full = question.mode == "full" or recompute.budget(context) >= context
        return best_first if is_full or share >= 1 else within_share(best_first, share)

    def _answer_tokens(self, question: Question) -> int:
        return question.max_tokens or self._settings.max_answer_tokens


def fitting(passages: Sequence[Passage], room: int) -> list[Passage]:
    """The best passages that fit `room` tokens together, best first.

    Raises TooLarge if there is room for none: an answer without passages would be made up.
    """
    fit = _within(passages, room)
    if not fit:
        raise TooLarge(
            f"the question and its answer leave room for only {room} tokens, too few for a passage: lower max_tokens"
        )
    return fit


def within_share(best_first: Sequence[Passage], share: float) -> list[Passage]:
    """The best passages that fit a share of the tokens of all together, best first, and the best in any case."""
    best, *worse = best_first
    left = budget_of(share, sum(passage.chunk.num_tokens for passage in best_first)) - best.chunk.num_tokens
    return [best, *_within(worse, left)]


def _within(passages: Sequence[Passage], room: int) -> list[Passage]:
    fit: list[Passage] = []
    for passage in passages:
        if passage.chunk.num_tokens <= room:
            fit.append(passage)
            room -= passage.chunk.num_tokens
    return fit


def in_prompt_order(best_first: Sequence[Passage], order: PassageOrder) -> tuple[Passage, ...]:
    """The passages in the order of the prompt. Which order suits a model is measured (docs/BENCHMARKS.md)."""
    return tuple(reversed(best_first)) if order == "best_last" else tuple(best_first)


class Trimmed:
    """Text that arrives in pieces, without leading and trailing white space: what it returned, joined, is `text`, and
    offsets into `text` hold for it."""

    def __init__(self) -> None:
        self.text = ""
        self._held = ""

    def add(self, piece: str) -> str:
        """The next part of the text, empty if there is none yet: white space is held back until something follows."""
        text = self._held + piece if self.text else piece.lstrip()
        part = text.rstrip()
        self._held = text[len(part) :]
        self.text += part
        return part


def _timings(prepared: Prepared, report: Report, began: float, handed_over: float, first_at: float) -> Timings:
    return Timings(
        retrieve_ms=prepared.retrieve_ms,
        plan_ms=prepared.plan_ms,
        ttft_ms=(first_at - began) * 1e3,
        engine_ttft_ms=(first_at - handed_over) * 1e3,
        kv_load_ms=report.kv_load_ms,
        recompute_ms=report.recompute_ms,
        total_ms=(time.perf_counter() - began) * 1e3,
    )


def _usage(prepared: Prepared, report: Report, completion: int) -> Usage:
    return Usage(
        prompt=len(prepared.prompt.token_ids),
        **{origin: getattr(report, origin) for origin in ORIGINS},
        completion=completion,
        failed_chunks=prepared.plan.num_without_kv(report.failed_keys) if prepared.plan else 0,
    )
