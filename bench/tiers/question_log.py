"""Requests for chunks from a service's own log of questions.

The log holds questions, not what was retrieved for them: each is searched again, in its collection as it is now. What
was asked about documents that are gone finds others, or none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from bench.measuring import read_lines
from bench.tiers.workload import Request, Workload
from ragkv.answer.service import in_prompt_order
from ragkv.chunk import Passage
from ragkv.cli.opened import tenant_id_of
from ragkv.errors import NotFound, Rejected
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import collection_ref
from ragkv.service.parts import Parts
from ragkv.service.questions.questions import all_questions
from ragkv.service.questions.statements import QuestionFilter

_EXPORT = ": give the export of the log, GET /v1/questions/export"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log's export, as far as it is needed. Without a mode nothing was retrieved: the answer was a kept
    one, or the record of the question is gone and its feedback alone is left."""

    question: str
    asked_at: datetime
    collection_id: str
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """Questions in order of time, those of which nothing is known to have been retrieved left out, and how many these
    were."""

    name: str
    questions: Sequence[Asked]
    left_out: int

    @classmethod
    def of(cls, name: str, questions: Iterator[Asked]) -> "Log":
        every = list(questions)
        answered = sorted(
            (question for question in every if question.mode is not None), key=lambda question: question.asked_at
        )
        return cls(name, answered, len(every) - len(answered))


def exported_log(file: Path) -> Log:
    """The export of a log. Raises Rejected for what is none."""
    return Log.of(file.stem, (question for _, question in read_lines(file, Asked, _EXPORT)))


def logged(tenant: str, collection: str, database: Database) -> Log:
    """The log of a collection in this service's database. Raises NotFound."""
    tenant_id = tenant_id_of(tenant, database)
    ref = collection_ref(tenant_id, collection, database)
    rows = all_questions(QuestionFilter(tenant_id, ref.collection_id), database)
    return Log.of(
        collection,
        (
            Asked(question=row.question, asked_at=row.asked_at, collection_id=row.collection_id, mode=row.mode)
            for row in rows
        ),
    )


def retrieved(log: Log, tenant: str, parts: Parts, advance: Callable[[], object]) -> tuple[Workload, int]:
    """Passages retrieved for the questions of a log, and the number of those that find nothing.

    By the settings' top_k, hops and order; the order of a re-ranker that the engine runs is left out. Raises Rejected
    if there are not two questions that find something.
    """
    tenant_id = tenant_id_of(tenant, parts.database)
    settings = parts.settings
    requests: list[Request] = []
    tokens: dict[str, int] = {}
    for question in log.questions:
        passages = _search(question, tenant_id, parts)
        chunks = [passage.chunk for passage in in_prompt_order(passages, settings.passage_order)]
        if chunks:
            tokens |= {chunk.id: chunk.num_tokens for chunk in chunks}
            moment = question.asked_at.timestamp()
            requests.append(Request(moment, tuple(dict.fromkeys(chunk.id for chunk in chunks))))
        advance()
    if len(requests) < 2:  # noqa: PLR2004 - nothing is used again before the second
        raise Rejected(
            f"{log.name}: only {len(requests)} of {len(log.questions)} questions find a passage, two are needed. "
            "Questions that retention removed, answers from the cache, and collections that are gone or empty say nothing "
            "about the use of chunks"
        )
    return Workload(f"questions({log.name})", requests, tokens), len(log.questions) - len(requests)


def _search(question: Asked, tenant_id: str, parts: Parts) -> Sequence[Passage]:
    try:
        collection_ref(tenant_id, question.collection_id, parts.database)
    except NotFound:
        return ()
    limits = (parts.settings.top_k, parts.settings.hops)
    return parts.retriever.search(tenant_id, question.collection_id, question.question, *limits)
