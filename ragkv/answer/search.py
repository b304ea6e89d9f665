"""A search as questions use it: retrieval, then optional re-ranking by the Q-Cache."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ragkv.answer.planner import Planner
from ragkv.answer.prompt import PromptBuilder
from ragkv.answer.question_vectors import behind_prefix, report_of
from ragkv.chunk import Passage
from ragkv.engine.protocol import Engine, Generate, Ranking
from ragkv.errors import RagKVError
from ragkv.kv.key import KeyMaker
from ragkv.plain_text import clean_question
from ragkv.retrieve.fusion import in_both_orders
from ragkv.retrieve.index import DocumentIds
from ragkv.retrieve.rerank import CANDIDATES
from ragkv.retrieve.retriever import Retriever
from ragkv.threads import Threads

log = logging.getLogger(__name__)

Heads = tuple[tuple[int, int], ...]
"""(layer, query head) pairs."""


@dataclass(frozen=True, slots=True)
class QCacheRanker:
    """Ranks passages by the attention of a question, behind the prefix alone, to their stored keys: in a few heads,
    which a calibration found (ragkv/stitch/rank.py). Needs no model but the one that answers."""

    engine: Engine
    prompts: PromptBuilder
    planner: Planner
    heads: Heads
    threads: Threads

    async def reordered(self, question: str, passages: Sequence[Passage], keys: KeyMaker) -> list[Passage]:
        """The passages by both orders, the one they come in and the attention's, fused by reciprocal rank. A passage
        without KV, and all of them while the engine is away, have their place in the first order alone."""
        request = await self.threads.run(self._request, question, passages, keys)
        try:
            report = await report_of(request, self.engine)
        except RagKVError as error:  # also a question too long for the engine: to search needs none
            log.warning("passages keep the order of retrieval: %s", error)
            return list(passages)
        shares = (report.shares if report else None) or ()
        ranked = [(share, index) for index, share in enumerate(shares) if share is not None]
        order = [index for _, index in sorted(ranked, key=lambda found: -found[0])]
        return in_both_orders(passages, order)

    def _request(self, question: str, passages: Sequence[Passage], keys: KeyMaker) -> Generate:
        kept = tuple(self.planner.stored(passage.chunk, keys).key for passage in passages)
        question_ids, text = self.prompts.question_ids(question), self.prompts.text_in(question)
        return behind_prefix(self.prompts.prefix_ids, question_ids, text, keys, Ranking(kept, self.heads))


class Searcher:
    """Finds passages for questions. One per process."""

    def __init__(
        self,
        retriever: Retriever,
        threads: Threads,
        keys_of: Callable[[str, str], KeyMaker],
        ranker: QCacheRanker | None,
    ) -> None:
        """threads: those that search. keys_of: of a tenant and its collection. ranker: None where the settings ask for
        none."""
        self._retriever = retriever
        self._threads = threads
        self._keys_of = keys_of
        self._ranker = ranker

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
        question = clean_question(question)
        limit = top_k if self._ranker is None else max(top_k, CANDIDATES)
        found = await self._threads.run(
            partial(self._retriever.search, tenant_id, collection_id, question, limit, hops, document_ids)
        )
        if self._ranker is None or not found:
            return found
        keys = await self._threads.run(self._keys_of, tenant_id, collection_id)
        return (await self._ranker.reordered(question, found, keys))[:top_k]
