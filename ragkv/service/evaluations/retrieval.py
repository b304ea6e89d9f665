"""One question of a run, searched as the service does: the ranks of the passages that its answer needs."""

import time
from collections.abc import Sequence

from ragkv.answer.question import Question
from ragkv.retrieve.retriever import Searcher
from ragkv.service.evaluations.outcome import RetrievalOutcome

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
