"""Executes evaluation runs alongside users' questions: one question of one run at a time.

    queued --first question begun--> running --last one recorded--> done
                 any open run --cancelled--> cancelled, --settings changed since it began--> failed

A process holds a run for one question alone: then the run whose turn it is comes next, whichever process measures it.
What a process that died held is free once its hold ends, and the question is measured again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec

from ragkv import __version__
from ragkv.answer.question import Question
from ragkv.engine.protocol import EngineLost
from ragkv.errors import RagKVError, Unavailable
from ragkv.ids import new_id
from ragkv.models import public_name
from ragkv.retrieve.retriever import Searcher
from ragkv.service.base.database import Session, now_of
from ragkv.service.base.tables import EvaluationRow
from ragkv.service.evaluations.fidelity import FidelityMeter
from ragkv.service.evaluations.known import Known, known_of
from ragkv.service.evaluations.outcome import ComparedAnswers, FidelityOutcome, RetrievalOutcome, RunSettings
from ragkv.service.evaluations.runs import end_run
from ragkv.service.evaluations.statements import (
    DONE,
    FAILED,
    OPEN,
    RUNNING,
    any_open,
    change_held,
    next_question,
    next_run,
    record_outcome,
)
from ragkv.service.kv_admin.rule_statements import rule_of_collection
from ragkv.service.parts import Parts
from ragkv.threads import Threads

HOLD = timedelta(seconds=30)
"""One that ends in twice as long was taken by a clock that ran ahead."""
RENEW_S = 5.0
MAX_ATTEMPTS = 3
"""A question that ends the process or its engine each time is skipped, not begun for ever."""

log = logging.getLogger(__name__)

TOP_K = 10


async def measure_retrieval(
    question: Question, to_find: Sequence[str], searcher: Searcher, hops: int
) -> RetrievalOutcome:
    """to_find: texts, each of which a passage is to hold."""
    began = time.perf_counter()
    passages = await searcher.search(question.tenant_id, question.collection_id, question.text, TOP_K, hops)
    took_s = time.perf_counter() - began
    ranks = (
        next((rank for rank, passage in enumerate(passages, start=1) if text in passage.chunk.text), None)
        for text in to_find
    )
    return RetrievalOutcome(ranks=tuple(ranks), search_ms=took_s * 1e3)


@dataclass(frozen=True, slots=True)
class _Held:
    """One question of a run that this process holds. `known_question`: None if the question is no longer stored."""

    run_id: str
    ordinal: int
    kind: str
    question: Question
    known_question: Known | None


@dataclass(frozen=True, slots=True)
class _Measured:
    """The record of one question: an outcome, or the reason why there is none."""

    outcome: FidelityOutcome | RetrievalOutcome | None = None
    answers: ComparedAnswers | None = None
    error: str | None = None

    def values(self) -> dict[str, Any]:
        builtins: dict[str, Any] = msgspec.to_builtins(
            {"outcome": self.outcome, "answers": self.answers, "error": self.error}
        )
        return builtins


class EvaluationRunner:
    """One per process that has the engine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._holder = new_id()
        self._threads = Threads("evaluation", 1)

    async def step(self) -> bool:
        """Measure the next question of the run whose turn it is. False if there is none, or the engine is away.

        Raises Unavailable when something that it needs is away: the question is measured later.
        """
        has_work = await self._threads.run(self._parts.database.scalar, any_open()) is not None
        if not has_work or not await self._parts.engine.ready():
            return False
        await self._parts.loading.finished()
        held = await self._threads.run(self._take)
        if held is None:
            return False
        measuring = asyncio.create_task(self._measured(held))
        keeping = asyncio.create_task(self._keep(held, measuring.cancel))
        try:
            await asyncio.wait((measuring,))
            if not measuring.cancelled():
                await self._threads.run(self._record, held, measuring.result())
        except BaseException as error:
            measuring.cancel()
            engine_ended = isinstance(error, EngineLost) and error.taken
            await self._threads.run(self._release, held, attempted=engine_ended)
            raise
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, measuring, return_exceptions=True)
        return True

    def _take(self) -> _Held | None:
        """Hold the next question of the next run. None if none waits, or the one whose turn it was has ended."""
        with self._parts.database.writing() as session:
            moment = now_of(session)
            row = session.scalars(next_run(moment, 2 * HOLD)).first()
            if row is None:
                return None
            own = session.execute(rule_of_collection(row.collection_id)).one()
            rule = self._parts.settings.kv_rule.in_place_of(*own)
            compression = rule.compression.name if rule.compression else ""
            present = self._settings | {"kv_format": rule.format, "kv_compression": compression}
            left = session.scalars(next_question(row.id)).first()
            if row.settings not in (None, present):
                end_run(row, FAILED, session, "the settings changed before it ended: start another")
                return None
            if left is None:
                end_run(row, DONE, session)
                return None
            if row.attempts >= MAX_ATTEMPTS:
                skipped = _Measured(
                    error=f"the service or the engine stopped {MAX_ATTEMPTS} times while it was being measured"
                )
                _note(row, left.ordinal, skipped, session)
                return None
            row.state, row.settings, row.holder, row.attempts = RUNNING, present, self._holder, row.attempts + 1
            row.stepped_at, row.leased_until = moment, moment + HOLD
            known_question = known_of(row.id, left.ordinal, session)
            question = Question(row.tenant_id, row.collection_id, "" if known_question is None else known_question.text)
            return _Held(row.id, left.ordinal, row.kind, question, known_question)

    async def _keep(self, held: _Held, lost: Callable[[], object]) -> None:
        """Renew the hold. Calls `lost` once the run was cancelled or deleted."""
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(Unavailable):
                if not await self._threads.run(self._renew, held):
                    lost()

    def _renew(self, held: _Held) -> bool:
        with self._parts.database.writing() as session:
            until = now_of(session) + HOLD
            renewed = change_held(held.run_id, self._holder, leased_until=until)
            return bool(session.connection().execute(renewed).rowcount)

    def _release(self, held: _Held, *, attempted: bool) -> None:
        """Give a run back whose question was not measured. attempted: it may be the question that ended the engine."""
        with self._parts.database.writing() as session:
            free = {"holder": None, "leased_until": None}
            again = free if attempted else free | {"attempts": EvaluationRow.attempts - 1}
            session.execute(change_held(held.run_id, self._holder, **again))

    def _record(self, held: _Held, measured: _Measured) -> None:
        """Record a measured question, unless the run has been cancelled or deleted, or another process holds it."""
        with self._parts.database.writing() as session:
            row = session.get(EvaluationRow, held.run_id, with_for_update=True)
            if row is not None and row.holder == self._holder and row.state in OPEN:
                _note(row, held.ordinal, measured, session)

    async def _measured(self, held: _Held) -> _Measured:
        """Measure one question; other errors become its outcome. Raises Unavailable alone."""
        if held.known_question is None:
            return _Measured(error="the question is no longer stored")
        parts = self._parts
        try:
            if held.kind == "fidelity":
                answerer, answer_tokens = parts.answerer.uncached, parts.settings.max_answer_tokens
                meter = FidelityMeter(answerer, parts.engine, parts.prompts, answer_tokens)
                return _Measured(*await meter.measure(held.question, held.known_question.answers))
            await parts.answerer.uncached.until_idle()
            to_find = await self._threads.run(held.known_question.to_find)
            if not to_find:
                return _Measured(error="no passage is known to support an answer")
            return _Measured(await measure_retrieval(held.question, to_find, parts.searcher, parts.settings.hops))
        except Unavailable:
            raise
        except RagKVError as error:
            return _Measured(error=str(error))
        except Exception:
            log.exception("a question of the evaluation %s was not measured", held.run_id)
            return _Measured(error="an error in the service: see its log")

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """The settings that answers depend on, as JSON; those for KV are the service's."""
        parts, settings = self._parts, self._parts.settings
        recompute = parts.recomputing.default(written=True)
        present = RunSettings(
            version=__version__,
            model=public_name(settings),
            model_fingerprint=parts.model_fingerprint,
            writer=parts.writer_fingerprint,
            kv_format=settings.kv_format,
            policy=recompute.policy,
            recompute_ratio=recompute.ratio,
            recompute_max_tokens=settings.recompute_max_tokens,
            block_size=recompute.block_size,
            top_k=settings.top_k,
            hops=settings.hops,
            reranker=settings.reranker,
            passage_order=settings.passage_order,
            index=parts.index_fingerprint,
            sparse_ratio=settings.sparse_ratio,
            digest=parts.answer_digest,
        )
        builtins: dict[str, Any] = msgspec.to_builtins(present)
        return builtins


def _note(row: EvaluationRow, ordinal: int, measured: _Measured, session: Session) -> None:
    """Record one question, and end the run with its last one."""
    record_outcome(session, row.id, ordinal, **measured.values())
    row.done, row.attempts, row.holder, row.leased_until = row.done + 1, 0, None, None
    if row.done >= row.total:
        end_run(row, DONE, session)
