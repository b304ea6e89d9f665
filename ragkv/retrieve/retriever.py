"""From a question to passages, in one or more hops.

Hop 1 is a hybrid search for the question. Each further hop adds two kinds of evidence, on the scale of reciprocal rank
fusion (about 1 for the best, 1/2 for the second, and so on), so that scores simply add up:

- links: a chunk whose title the question or one of the best passages so far names. The answer to "When did the mother of
  X die?" lies in the passage about the mother, whom the question does not name and the passage about X does;
- an enriched search: the question together with the start of the best passage that was not used for this yet.

Measured in docs/BENCHMARKS.md ("Retrieval"), where each kind alone is worse than both.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ragkv.chunk import Chunk, Passage
from ragkv.retrieve.embed import embed_question
from ragkv.retrieve.encoder import Encoder
from ragkv.retrieve.index import DEPTH, Index
from ragkv.retrieve.links import TitleLinks
from ragkv.retrieve.mirror import Mirror
from ragkv.retrieve.vectors import Vectors

SOURCES = 5
"""Best passages whose text is searched for links."""
ENRICH_CHARACTERS = 200
"""How much of a passage joins the question in an enriched search."""
CACHED_COLLECTIONS = 64

Scores = dict[str, float]


class ChunkSource(Protocol):
    """The database's side of retrieval."""

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Those of the chunks that exist and belong to the tenant."""
        ...

    def titles_version(self, tenant_id: str, collection_id: str) -> str:
        """Changes whenever a searchable chunk of the collection comes or goes. Asked at every search: keep it cheap."""
        ...

    def titles(self, tenant_id: str, collection_id: str) -> Mapping[str, Sequence[str]]:
        """Every title of the collection's searchable chunks with the ids of the chunks under it."""
        ...


class Retriever:
    """Finds passages for questions. Safe to share between threads; every call blocks."""

    def __init__(self, encoder: Encoder, index: Index, chunks: ChunkSource, mirror: Mirror | None = None) -> None:
        """`mirror`: brings an in-memory index up to date before each search; None for a Qdrant server."""
        self._encoder = encoder
        self._index = index
        self._chunks = chunks
        self._mirror = mirror
        self._links = _LinksCache(chunks)

    def search(self, tenant_id: str, collection_id: str, question: str, top_k: int, hops: int) -> list[Passage]:
        """The best `top_k` passages, best first; fewer when the collection holds fewer, none when it is empty.

        A passage's `hop` is 1 when the first search alone would have returned it, else the hop whose evidence brought it
        in. Raises Unavailable when the index is away.
        """
        if self._mirror is not None:
            self._mirror.sync(tenant_id, collection_id)
        search = _Search(self, tenant_id, collection_id, question)
        found_in = dict.fromkeys(search.first_hop(top_k), 1)
        for hop in range(2, hops + 1):
            for chunk_id in search.next_hop(top_k):
                found_in.setdefault(chunk_id, hop)
        best = search.best(top_k)
        chunks = search.read(best)
        return [Passage(chunks[i], search.scores[i], found_in[i]) for i in best if i in chunks]


class _Search:
    """One question on its way through the hops."""

    def __init__(self, parts: Retriever, tenant_id: str, collection_id: str, question: str) -> None:
        self._parts = parts
        self._scope = (tenant_id, collection_id)
        self._question = question
        self._vectors: Vectors = embed_question(parts._encoder, question)
        self._searched: Scores = {}
        self._enriched: set[str] = set()
        self._read: dict[str, Chunk] = {}
        self.scores: Scores = {}

    def first_hop(self, top_k: int) -> list[str]:
        self._add_search(self._vectors, max(DEPTH, top_k))
        self.scores = dict(self._searched)
        return self.best(top_k)

    def next_hop(self, top_k: int) -> list[str]:
        """Adds the evidence that the best passages so far give; the new best."""
        if not self.scores:
            return []
        sources = list(self.read(self.best(SOURCES)).values())
        links = self._links_from(sources)
        fresh = next((chunk for chunk in sources if chunk.id not in self._enriched), None)
        if fresh is not None:
            self._enriched.add(fresh.id)
            self._add_search(embed_question(self._parts._encoder, enriched(self._question, fresh)), DEPTH)
        self.scores = {i: self._searched.get(i, 0.0) + links.get(i, 0.0) for i in self._searched | links}
        return self.best(top_k)

    def best(self, limit: int) -> list[str]:
        return sorted(self.scores, key=lambda i: (-self.scores[i], i))[:limit]

    def read(self, chunk_ids: list[str]) -> dict[str, Chunk]:
        """Those chunks that still exist, in the order of their ids."""
        if unread := [i for i in chunk_ids if i not in self._read]:
            self._read |= self._parts._chunks.chunks(self._scope[0], unread)
        return {i: self._read[i] for i in chunk_ids if i in self._read}

    def _add_search(self, vectors: Vectors, limit: int) -> None:
        for hit in self._parts._index.search(*self._scope, vectors, limit):
            self._searched[hit.chunk_id] = self._searched.get(hit.chunk_id, 0.0) + hit.score

    def _links_from(self, sources: Sequence[Chunk]) -> Scores:
        """The strongest link to each chunk: 1 / (rank of the passage that links) / (rank among chunks of one title)."""
        title_links = self._parts._links.of(*self._scope)
        groups = list(_linked_groups(title_links, self._question, sources))
        ambiguous = {i for _, group in groups if len(group) > 1 for i in group}
        dense = self._parts._index.dense_of(*self._scope, sorted(ambiguous))
        links: Scores = defaultdict(float)
        for weight, group in groups:
            for rank, chunk_id in enumerate(_by_similarity(group, self._vectors.dense, dense), start=1):
                links[chunk_id] = max(links[chunk_id], weight / rank)
        return links


def enriched(question: str, chunk: Chunk) -> str:
    """The question as the second hop searches for it: with what was found."""
    return f"{question} {chunk.title}. {chunk.text[:ENRICH_CHARACTERS]}"


def _linked_groups(
    links: TitleLinks, question: str, sources: Sequence[Chunk]
) -> Iterator[tuple[float, tuple[str, ...]]]:
    """(weight, chunks under one title) for each title named; what a passage says of its own title is no link."""
    for group in links.mentioned(question):
        yield 1.0, group
    for rank, source in enumerate(sources, start=1):
        for group in links.mentioned(source.text):
            if source.id not in group:
                yield 1.0 / rank, group


def _by_similarity(
    group: Sequence[str], question: NDArray[np.float32], dense: Mapping[str, NDArray[np.float32]]
) -> list[str]:
    if len(group) == 1:
        return list(group)
    return sorted((i for i in group if i in dense), key=lambda i: -float(dense[i] @ question))


class _LinksCache:
    """Titles of the collections that were searched last, read again when a collection's version moves."""

    def __init__(self, chunks: ChunkSource) -> None:
        self._chunks = chunks
        self._lock = threading.Lock()
        self._cached: dict[tuple[str, str], tuple[str, TitleLinks]] = {}

    def of(self, tenant_id: str, collection_id: str) -> TitleLinks:
        scope = (tenant_id, collection_id)
        version = self._chunks.titles_version(*scope)
        with self._lock:
            cached = self._cached.pop(scope, None)
            if cached is None or cached[0] != version:
                cached = (version, TitleLinks(self._chunks.titles(*scope)))
            self._cached[scope] = cached
            while len(self._cached) > CACHED_COLLECTIONS:
                del self._cached[next(iter(self._cached))]
        return cached[1]
