"""A search as questions use it."""

from functools import partial

from ragkv.chunk import Passage
from ragkv.retrieve.index import DocumentIds
from ragkv.retrieve.retriever import Retriever
from ragkv.text import clean_question
from ragkv.threads import Threads


class Searcher:
    """Finds passages for questions. One per process."""

    def __init__(self, retriever: Retriever, threads: Threads) -> None:
        """threads: those that search."""
        self._retriever = retriever
        self._threads = threads

    async def search(
        self,
        tenant_id: str,
        collection_id: str,
        question: str,
        top_k: int,
        hops: int,
        document_ids: DocumentIds | None = None,
    ) -> list[Passage]:
        """Like Retriever.search, for a question that is cleaned here as documents are."""
        place = tenant_id, collection_id, clean_question(question)
        return await self._threads.run(partial(self._retriever.search, *place, top_k, hops, document_ids))
