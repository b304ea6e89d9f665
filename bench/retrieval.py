"""Recall of each search method over a corpus of passages and questions with known gold passages.

Each line of the corpus is one passage, `{"id", "title", "text", "document"}`, and is searched as one chunk, however
long. Passages of one `document`, a file's name, are parts of it; a passage without is a document of its own. Each line
of the data is one question, `{"id", "question", "gold_ids"}`; all of `gold_ids` are needed to answer it. Other fields
are ignored. Every question is asked of every method before the next one, so that a machine that slows down slows all of
them.

The report is one JSON object, a `RetrievalReport`. Its rows have the methods in the order of `METHODS`, then, where
there is a re-ranker, those of `RERANKED`; its differences say what the re-ranker changes, question by question.
"""

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from bench.measuring import read_lines
from ragkv.chunk import Chunk
from ragkv.errors import Rejected
from ragkv.retrieve import sparse
from ragkv.retrieve.encoder import Encoder, TextProgress, embed_chunks, embed_question
from ragkv.retrieve.index import DocumentIds, Index, Point, Vectors
from ragkv.retrieve.links import TitledChunk
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.names import DocumentNames, Named
from ragkv.retrieve.rerank import Reranker
from ragkv.retrieve.retriever import Retriever
from ragkv.service.evaluations.metrics import interval, resamples

CUTOFFS = (2, 5, 10)
TOP_K = max(CUTOFFS)
HOPS = 2
DENSE, BM25, HYBRID, HYBRID_HOPS = METHODS = ("dense", "bm25", "hybrid", "hybrid + hops")
RERANKED = (f"{HYBRID} + re-ranker", f"{HYBRID_HOPS} + re-ranker")
TENANT = COLLECTION = "corpus"
"""The place of a corpus in its index."""

StepProgress = Callable[[str, int, int], None]
"""Told (what is being done, how many done, how many in all)."""
Find = Callable[[str], list[str]]
"""A question's passages by id, best first, `TOP_K` at most."""


class _Passage(msgspec.Struct, frozen=True):
    id: int | str
    text: str
    title: str = ""
    document: str | None = None


class _Question(msgspec.Struct, frozen=True):
    question: Annotated[str, msgspec.Meta(min_length=1)]
    gold_ids: Annotated[list[int | str], msgspec.Meta(min_length=1)]
    id: int | str = ""


@dataclass(frozen=True, slots=True)
class RetrievalQuestion:
    """A question and the ids of all passages that its answer needs."""

    text: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """The passages one method found for one question: ids, best first, `TOP_K` at most."""

    ranking: Sequence[str]
    gold: frozenset[str]
    seconds: float


class RetrievalRow(msgspec.Struct, frozen=True):
    """One method over all questions, in percent; `ms_per_query` is the median, the question's embedding included.

    recall: share of a question's gold passages among the first k, averaged over questions. all_gold: share of questions
    with every gold passage among the first k. mrr: 1 / rank of the first gold passage among the first 10, else 0.
    """

    method: str
    recall_at_2: float
    recall_at_5: float
    recall_at_10: float
    all_gold_at_2: float
    all_gold_at_5: float
    all_gold_at_10: float
    mrr: float
    ms_per_query: float


class Difference(msgspec.Struct, frozen=True):
    """Recall at `cutoff` of `method` less that of `against`, in points: mean, and its 95% bootstrap interval over
    questions."""

    method: str
    against: str
    cutoff: int
    mean: float
    low: float
    high: float


class RetrievalReport(msgspec.Struct, frozen=True):
    """The report of `ragkv eval retrieval --json`. `n` questions were asked of a corpus of `passages`.

    `encoder` and `reranker` are the settings of these names; `reranker` is null where there is none.
    """

    corpus: str
    data: str
    encoder: str
    reranker: str | None
    n: int
    passages: int
    rows: list[RetrievalRow]
    differences: list[Difference]


class Corpus:
    """Passages in memory, as chunks of documents: what the database is to retrieval."""

    def __init__(self, chunks: Mapping[str, Chunk]) -> None:
        self._chunks = chunks
        self._documents = {chunk.document_id: 1 for chunk in chunks.values()}
        self._names = DocumentNames()
        for document_id in self._documents.keys() - chunks.keys():
            self._names.rename(document_id, document_id)

    @classmethod
    def read(cls, path: Path) -> "Corpus":
        """The passages of a file. Raises Rejected, naming file and line, for what is no passage and an id that was
        there before."""
        chunks: dict[str, Chunk] = {}
        for number, line in read_lines(path, _Passage):
            chunk_id = str(line.id)
            if chunk_id in chunks:
                raise Rejected(f"{path}, line {number}: a second passage with id {chunk_id}")
            document_id = line.document or chunk_id
            chunks[chunk_id] = Chunk(
                chunk_id, document_id, len(chunks), line.title, line.text, 0, len(line.text), page=None, token_ids=()
            )
        if not chunks:
            raise Rejected(f"{path}: no passages in it")
        return cls(chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, chunk_id: str) -> bool:
        return chunk_id in self._chunks

    def indexed_documents(self, tenant_id: str, collection_id: str) -> Mapping[str, int]:
        return self._documents

    def of_other_encoders(self, tenant_id: str, collection_id: str) -> DocumentIds:
        return frozenset()

    def outdated(self, tenant_id: str, collection_id: str) -> DocumentIds:
        return frozenset()

    def named(
        self,
        tenant_id: str,
        collection_id: str,
        terms: Sequence[int],
        limit: int,
        document_ids: DocumentIds | None = None,
    ) -> list[Named]:
        return self._names.named(terms, limit, document_ids)

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        return [self._chunks[i] for i in chunk_ids if i in self._chunks]

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> list[TitledChunk]:
        return [TitledChunk(c.document_id, c.ordinal, c.id, c.title) for c in self._chunks.values()]

    def indexed(self, encoder: Encoder, progress: TextProgress | None = None) -> MemoryIndex:
        """An index of the passages. Takes minutes for ten thousand of them."""
        chunks = list(self._chunks.values())
        vectors = embed_chunks(encoder, [(chunk.title, chunk.text) for chunk in chunks], progress)
        index = MemoryIndex()
        index.ensure(encoder.dim)
        points = [Point(c.id, c.document_id, c.title, v) for c, v in zip(chunks, vectors, strict=True)]
        index.upsert(TENANT, COLLECTION, points)
        return index


def read_questions(path: Path, corpus: Corpus, limit: int | None = None) -> list[RetrievalQuestion]:
    """The first `limit` questions, or all. Raises Rejected, naming file and line, for what cannot be measured.

    That is a line that is no question, and a gold passage that the corpus does not hold: it could never be found.
    """
    questions: list[RetrievalQuestion] = []
    for number, line in read_lines(path, _Question):
        if len(questions) == limit:
            break
        gold = dict.fromkeys(map(str, line.gold_ids))
        if unknown := [i for i in gold if i not in corpus]:
            raise Rejected(f"{path}, line {number}: no passage with id {', '.join(unknown)} in the corpus")
        questions.append(RetrievalQuestion(line.question, frozenset(gold)))
    if not questions:
        raise Rejected(f"{path}: no questions in it")
    return questions


def evaluate(
    corpus: Corpus,
    questions: Sequence[RetrievalQuestion],
    encoder: Encoder,
    progress: StepProgress,
    reranker: Reranker | None = None,
) -> tuple[list[RetrievalRow], list[Difference]]:
    """A row for each of `METHODS`, and of `RERANKED` with a re-ranker; then what the re-ranker changes. The corpus is
    encoded once for all of them."""
    index = corpus.indexed(encoder, partial(progress, "encoding passages"))
    methods = _methods(encoder, index, corpus, reranker)
    outcomes: dict[str, list[FoundPassages]] = {method: [] for method in methods}
    for number, question in enumerate(questions, start=1):
        for method, find in methods.items():
            began = time.perf_counter()
            ranking = find(question.text)
            outcomes[method].append(FoundPassages(ranking, question.gold, time.perf_counter() - began))
        progress("asking questions", number, len(questions))
    pairs = zip(RERANKED, (HYBRID, HYBRID_HOPS), strict=True) if reranker else ()
    differences = [difference(method, against, k, outcomes) for method, against in pairs for k in CUTOFFS]
    return [summarise(method, of_method) for method, of_method in outcomes.items()], differences


def _methods(encoder: Encoder, index: Index, corpus: Corpus, reranker: Reranker | None) -> dict[str, Find]:
    retriever = Retriever(partial(embed_question, encoder), index, corpus)

    def find_terms(question: str) -> list[str]:
        """BM25 needs no encoder: its time is without one. A question of stop words alone finds nothing."""
        vectors = Vectors(np.zeros(encoder.dim, np.float32), *sparse.query_vector(question))
        if not vectors.indices.size:
            return []
        return [hit.chunk_id for hit in index.search(TENANT, COLLECTION, vectors, TOP_K, "sparse")]

    methods: dict[str, Find] = {
        DENSE: lambda question: [
            hit.chunk_id for hit in index.search(TENANT, COLLECTION, embed_question(encoder, question), TOP_K, "dense")
        ],
        BM25: find_terms,
        HYBRID: partial(_find_hybrid, retriever, 1),
        HYBRID_HOPS: partial(_find_hybrid, retriever, HOPS),
    }
    if reranker is not None:
        reranking = Retriever(partial(embed_question, encoder), index, corpus, reranker=reranker)
        methods |= {
            name: partial(_find_hybrid, reranking, hops) for name, hops in zip(RERANKED, (1, HOPS), strict=True)
        }
    return methods


def _find_hybrid(retriever: Retriever, hops: int, question: str) -> list[str]:
    return [passage.chunk.id for passage in retriever.search(TENANT, COLLECTION, question, TOP_K, hops)]


def summarise(method: str, outcomes: Sequence[FoundPassages]) -> RetrievalRow:
    """The means, in percent, over at least one question."""
    return RetrievalRow(
        method,
        **{f"recall_at_{k}": _percent(recall(o.ranking, o.gold, k) for o in outcomes) for k in CUTOFFS},
        **{f"all_gold_at_{k}": _percent(has_all(o.ranking, o.gold, k) for o in outcomes) for k in CUTOFFS},
        mrr=_percent(reciprocal_rank(o.ranking, o.gold) for o in outcomes),
        ms_per_query=round(statistics.median(o.seconds for o in outcomes) * 1000, 3),
    )


def difference(method: str, against: str, cutoff: int, outcomes: Mapping[str, Sequence[FoundPassages]]) -> Difference:
    """Difference of two methods over the same questions, at least one."""
    ours, theirs = (
        np.array([100 * recall(o.ranking, o.gold, cutoff) for o in outcomes[name]]) for name in (method, against)
    )
    gains = ours - theirs
    low, high = interval(gains[resamples(len(gains), 0)].mean(-1)) or (0.0, 0.0)
    return Difference(method, against, cutoff, round(float(gains.mean()), 3), round(low, 3), round(high, 3))


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of the gold passages that are among the first k found."""
    return len(set(ranking[:k]) & set(gold)) / len(gold)


def has_all(ranking: Sequence[str], gold: Collection[str], k: int) -> bool:
    """Whether every gold passage is among the first k found. Never, where there are more than k of them."""
    return set(gold) <= set(ranking[:k])


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold passage found, 0 if there is none."""
    return next((1 / rank for rank, chunk_id in enumerate(ranking, start=1) if chunk_id in gold), 0.0)


def _percent(values: Iterator[float]) -> float:
    return round(100 * statistics.fmean(values), 3)
