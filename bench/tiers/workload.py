"""Requests for chunks: a service's trace, its own log of questions, or synthetic ones by Zipf's law.

The log holds questions, not what was retrieved for them: each is searched again, in its collection as it is now. What
was asked about documents that are gone finds others, or none.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path

import msgspec

from bench.measuring import read_lines
from ragkv.answer.service import in_prompt_order
from ragkv.chunk import Passage
from ragkv.cli.opened import tenant_id_of
from ragkv.errors import NotFound, Rejected
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import collection_ref
from ragkv.service.parts import Parts
from ragkv.service.questions.questions import all_questions
from ragkv.service.questions.statements import QuestionFilter

BLOCK_TOKENS = 512
"""Tokens of a hash id in a trace."""
TOKENS_OF_CHUNKS = (45, 78, 112, 132, 143, 157, 166, 178, 187, 197, 204, 213, 218, 226, 234, 238, 243, 246, 249, 253)
"""Tokens of a synthetic chunk, each as likely: twentieths of the 571 chunks that the sample documents and this
documentation have."""
_EXPORT = ": give the export of the log, GET /v1/questions/export"


class _Line(msgspec.Struct):
    """One request of a trace in Mooncake's format. timestamp: milliseconds."""

    timestamp: float
    input_length: int
    hash_ids: list[int]


@dataclass(frozen=True, slots=True)
class Request:
    """Chunks that one question reads, in the order of the prompt, each once. moment: seconds."""

    moment: float
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of time. tokens: of each chunk."""

    name: str
    requests: Sequence[Request]
    tokens: Mapping[str, int]


def read_trace(file: Path) -> Workload:
    """A trace in Mooncake's format (FAST '25): JSON lines with `timestamp`, `input_length` and `hash_ids`. Raises
    Rejected."""
    requests: list[Request] = []
    tokens: dict[str, int] = {}
    for _, read in read_lines(file, _Line):
        chunks = tuple(dict.fromkeys(map(str, read.hash_ids)))
        if not chunks:
            continue
        tokens |= dict.fromkeys(chunks, BLOCK_TOKENS)
        requests.append(Request(read.timestamp / 1e3, chunks))
    if not requests:
        raise Rejected(f"{file}: no request has hash_ids")
    requests.sort(key=lambda request: request.moment)
    return Workload(file.stem, requests, tokens)


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
        passages: Sequence[Passage] = ()
        try:
            collection_ref(tenant_id, question.collection_id, parts.database)
        except NotFound:
            pass
        else:
            limits = (settings.top_k, settings.hops)
            passages = parts.retriever.search(tenant_id, question.collection_id, question.question, *limits)
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


def zipf(exponent: float, num_chunks: int, num_requests: int, top_k: int, seed: int = 0) -> Workload:
    """Requests for `top_k` different chunks each, one a second: the chunk of rank r is drawn with a weight of r **
    -exponent."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    names = [str(number) for number in range(num_chunks)]
    draw.shuffle(names)
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(num_chunks)))
    requests = []
    for moment in range(num_requests):
        names_drawn: dict[str, None] = {}
        while len(names_drawn) < min(top_k, num_chunks):
            names_drawn |= dict.fromkeys(draw.choices(names, cum_weights=weights, k=top_k - len(names_drawn)))
        requests.append(Request(float(moment), tuple(names_drawn)))
    return Workload(f"zipf({exponent:g})", requests, {name: draw.choice(TOKENS_OF_CHUNKS) for name in names})
