"""One question of a run, searched as the service does: the ranks of the passages that its answer needs."""

import time
from collections.abc import Sequence

from ragkv.answer.question import Question
from ragkv.answer.search import Searcher
from ragkv.chunk import Passage
from ragkv.evaluation.outcome import RetrievalOutcome

TOP_K = 10


async def measure_retrieval(
    question: Question, to_find: Sequence[str], searcher: Searcher, hops: int
) -> RetrievalOutcome:
    """to_find: texts, each of which a passage is to hold."""
    began = time.perf_counter()
    passages = await searcher.search(question.tenant_id, question.collection_id, question.text, TOP_K, hops)
    took_s = time.perf_counter() - began
    return RetrievalOutcome(ranks=tuple(_rank(text, passages) for text in to_find), search_ms=took_s * 1e3)


def _rank(text: str, found: Sequence[Passage]) -> int | None:
    return next((rank for rank, passage in enumerate(found, start=1) if text in passage.chunk.text), None)
