"""Rank a question's own passages as the service's retrieval would."""

from collections.abc import Sequence
from functools import partial

from bench.retrieval import Corpus
from ragkv.chunk import Chunk, Passage
from ragkv.retrieve.embed import embed_question
from ragkv.retrieve.encoder import Encoder
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.rerank import Reranker
from ragkv.retrieve.retriever import Retriever

_TENANT = _COLLECTION = "fidelity"


class Ranker:
    """Hybrid retrieval over a corpus of one question's passages, in memory."""

    def __init__(self, encoder: Encoder, hops: int, reranker: Reranker | None = None) -> None:
        self._encoder = encoder
        self._hops = hops
        self._reranker = reranker

    def rank(self, question: str, chunks: Sequence[Chunk]) -> tuple[Passage, ...]:
        """All of the chunks, best first."""
        corpus = Corpus({chunk.id: chunk for chunk in chunks})
        index = MemoryIndex()
        try:
            index.ensure(self._encoder.dim)
            index.upsert(_TENANT, _COLLECTION, corpus.points(self._encoder))
            retriever = Retriever(partial(embed_question, self._encoder), index, corpus, reranker=self._reranker)
            passages = retriever.search(_TENANT, _COLLECTION, question, len(chunks), self._hops)
        finally:
            index.close()
        assert len(passages) == len(chunks), "a search for as many passages as there are finds them all"
        return tuple(passages)
