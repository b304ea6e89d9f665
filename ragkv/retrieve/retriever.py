"""From a question to passages, in one or more hops.

Hop 1 is a hybrid search for the question. An identifier in the question (the number of an invoice, a version, an
address) that only few passages have decides: by ranks alone the nearest of many like letters would win. Rare words of
the question count for all passages of the documents that have them, in a passage or in their file's name: of many like
contracts, the clause about notice in the one whose first page names the party.

Each further hop adds two kinds of evidence, on the scale of reciprocal rank fusion (1 for what both searches put first,
less the further down), so that they simply add up:

- links: a chunk whose title the question or one of the best passages so far names. The answer to "When did the mother
  of X die?" lies in the passage about the mother, whom the question does not name and the passage about X does;
- an enriched search: the question together with the start of the best passage that was not used for this yet. It finds
  what no title leads to.

docs/BENCHMARKS.md has the figures, and what did not work. Mixing the first passages' vectors into the question's is
much worse than either.

A re-ranker, where there is one, reads the best passages of all hops again and has half a say in their order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np

from ragkv.chunk import Chunk, Passage
from ragkv.errors import Unavailable
from ragkv.ids import batched
from ragkv.retrieve import sparse
from ragkv.retrieve.index import DEPTH, DocumentIds, Hit, Index, Vectors, fused, fused_hits
from ragkv.retrieve.links import LinkCache, TitleLinks, TitleSource
from ragkv.retrieve.mirror import DocumentVersions, Mirror
from ragkv.retrieve.names import Named
from ragkv.retrieve.rerank import CANDIDATES, Reranker
from ragkv.text import clean_question
from ragkv.threads import Threads

SOURCES = 5
"""Best passages whose text is searched for links."""
ENRICH_CHARACTERS = 100
"""How much of a passage joins the question in an enriched search."""
ENRICHED_WEIGHT = 0.7
"""What a hit of an enriched search counts beside one of the question itself."""
IDENTIFIERS = 16
"""The first identifiers of a question count."""
TERMS = 48
"""Terms of a question that are looked up one by one: these identifiers, then what weighs most."""
HOLDERS = 8
"""Passages that an identifier may have. What more passages have identifies none of them."""
IDENTIFIED_WEIGHT = 2.0
"""What an identifier counts for the only passage that has it; of n passages each gets an nth."""
RARE = 50
"""Passages, or documents by their names, that a term may have to say which documents are meant."""
DEEPEST = 16 * DEPTH
"""Hits among which passages are sought where those of a first search have too few different words."""
CANDIDATE_DOCUMENTS = 32
"""Documents with the most rare terms, among which the other terms count, too."""
COMMON = 200
"""Passages of these documents that a term may have."""
DOCUMENTS = 4
"""Documents with the most terms then, whose passages gain by them."""
MOST = 0.8
"""A passage with so much of what its document has gains nothing by it."""
EQUAL = 1e-3
"""Sums of scores that differ by no more are equal."""
_NO_POINTS = (
    "the Qdrant server has lost the vectors of these documents: `ragkv fsck --repair` writes them anew, and a worker "
    "begins to within two minutes, or within the hour if the server has others"
)

Scores = dict[str, float]
LinkedGroup = tuple[float, Sequence[str]]
"""The weight of a link and the chunks under the title it names."""


class SearchScope(NamedTuple):
    """Visibility of one search: a collection, or some of its documents."""

    tenant_id: str
    collection_id: str
    document_ids: DocumentIds | None = None


class CollectionSource(DocumentVersions, TitleSource, Protocol):
    """The database's side of retrieval."""

    def of_other_encoders(self, tenant_id: str, collection_id: str) -> DocumentIds:
        """The searchable documents whose dense vectors cannot be compared with a question's."""
        ...

    def outdated(self, tenant_id: str, collection_id: str) -> DocumentIds:
        """The searchable documents whose text is of a file that another has replaced."""
        ...

    def named(
        self,
        tenant_id: str,
        collection_id: str,
        terms: Sequence[int],
        limit: int,
        document_ids: DocumentIds | None = None,
    ) -> list[Named]:
        """For each term the documents whose file's name has it, as of the last `indexed_documents`: of these, if they
        are no more than `limit`."""
        ...

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        """The chunks that exist and belong to the tenant, in the order asked for."""
        ...


class Retriever:
    """Finds passages for questions. Safe to share between threads; every call blocks."""

    def __init__(
        self,
        embed: Callable[[str], Vectors],
        index: Index,
        chunks: CollectionSource,
        mirror: Mirror | None = None,
        reranker: Reranker | None = None,
        *,
        finds_outdated: bool = True,
    ) -> None:
        """`embed`: vectors of a question. `mirror`: brings an in-memory index up to date before each search; None for a
        Qdrant server. `finds_outdated`: whether text of a file that another has replaced is found."""
        self._embed = embed
        self._index = index
        self._chunks = chunks
        self._mirror = mirror
        self._reranker = reranker
        self._finds_outdated = finds_outdated
        self._links = LinkCache(chunks)

    def search(
        self,
        tenant_id: str,
        collection_id: str,
        question: str,
        top_k: int,
        hops: int,
        document_ids: DocumentIds | None = None,
        earlier: str = "",
    ) -> list[Passage]:
        """The best `top_k` passages, best first; fewer when the collection holds fewer, none when it is empty.

        With `document_ids` the collection is as if it held these documents alone, but for the rarity of its words.
        `earlier`: text that the question may refer back to. Whether it does, nobody knows: the question is searched
        for alone and together with it, and both rankings are fused.

        A passage's `hop` is 1 when the first search alone would have returned it (or handed it to the re-ranker), else
        the hop whose evidence brought it in. Raises Unavailable when the index is away.
        """
        scope = SearchScope(tenant_id, collection_id, document_ids)
        limit = top_k if self._reranker is None else max(top_k, CANDIDATES)
        passages = self._retrieve(scope, question, limit, hops)
        if earlier:
            question = f"{question} {earlier}"
            rankings = passages, self._retrieve(scope, question, limit, hops)
            passage_of = {_words(passage.chunk): passage for ranking in rankings for passage in ranking}
            scored = fused([_words(passage.chunk) for passage in ranking] for ranking in rankings)
            # On the scale of one search: a threshold for scores holds in each turn of a conversation.
            best = max((passage.score for ranking in rankings for passage in ranking), default=0.0)
            passages = [
                replace(passage_of[words], score=score / scored[0][1] * max(best, 0.0))
                for words, score in scored[:limit]
            ]
        if self._reranker is not None:
            passages = self._reranker.reordered(question, passages)
        return passages[:top_k]

    def held(self) -> list[tuple[str, str]]:
        """(tenant, collection) of every collection of which something is in this process's memory."""
        mirrored = [] if self._mirror is None else self._mirror.held()
        return sorted({*mirrored, *self._links.held()})

    def refresh(self, tenant_id: str, collection_id: str) -> None:
        """A collection has changed: what was deleted from it leaves this process's memory."""
        documents = self._documents(SearchScope(tenant_id, collection_id))
        self._links.refresh(tenant_id, collection_id, documents)

    def forget(self, tenant_id: str, collection_id: str) -> None:
        """A collection was deleted: its vectors and titles leave this process's memory."""
        self._links.drop(tenant_id, collection_id)
        if self._mirror is not None:
            self._mirror.drop(tenant_id, collection_id)

    def _retrieve(self, scope: SearchScope, question: str, limit: int, hops: int) -> list[Passage]:
        documents = self._documents(scope)
        if not documents:
            return []
        if not self._finds_outdated and (outdated := self._chunks.outdated(scope.tenant_id, scope.collection_id)):
            seen = frozenset(documents) if scope.document_ids is None else scope.document_ids
            scope = scope._replace(document_ids=seen - outdated)
        comparable = self._comparable(scope, documents)
        walk = _Walk(self._embed, self._index, self._chunks, scope, question, comparable, len(documents))
        found_in = dict.fromkeys(walk.first_hop(limit), 1)
        if not found_in and self._mirror is None:  # of a collection that was emptied meanwhile there is nothing to find
            expected = set(self._documents(scope))
            for visible in (scope.document_ids, comparable):
                expected &= expected if visible is None else visible
            if expected:
                raise Unavailable(_NO_POINTS)
        links = self._links.of(scope.tenant_id, scope.collection_id, documents) if hops > 1 else None
        for hop in range(2, hops + 1):
            assert links is not None, "made for the second hop"
            for chunk_id in walk.next_hop(links, limit):
                found_in.setdefault(chunk_id, hop)
        best = walk.best(limit)
        return [Passage(chunk, walk.scores[chunk.id], found_in[chunk.id]) for chunk in walk.read(best)]

    def _comparable(self, scope: SearchScope, documents: Mapping[str, int]) -> DocumentIds | None:
        """The documents of a scope that have vectors of this encoder; None where all that it sees have."""
        incomparable = self._chunks.of_other_encoders(scope.tenant_id, scope.collection_id)
        if not incomparable:
            return None
        return frozenset(documents if scope.document_ids is None else scope.document_ids) - incomparable

    def _documents(self, scope: SearchScope) -> Mapping[str, int]:
        if self._mirror is not None:
            return self._mirror.sync(scope.tenant_id, scope.collection_id)
        return self._chunks.indexed_documents(scope.tenant_id, scope.collection_id)


def _words(chunk: Chunk) -> str:
    """All that a prompt has of a chunk."""
    return f"{chunk.title}\n{chunk.text}"


class _Walk:
    """One question on its way through the hops: the evidence so far for each chunk."""

    def __init__(
        self,
        embed: Callable[[str], Vectors],
        index: Index,
        chunks: CollectionSource,
        scope: SearchScope,
        question: str,
        comparable: DocumentIds | None,
        num_documents: int,
    ) -> None:
        """comparable: the documents that dense vectors find, others are found by their words alone; None for all.
        num_documents: of the collection."""
        self._comparable = comparable
        self._num_documents = num_documents
        self._embed = embed
        self._index = index
        self._chunks = chunks
        self._scope = scope
        self._question = question
        self._vectors = embed(question)
        self._searched: Scores = defaultdict(float)
        self._enriched_with: set[str] = set()
        self._read: dict[str, Chunk] = {}
        self.scores: Scores = {}

    def first_hop(self, top_k: int) -> list[str]:
        """The best of a search for the question."""
        depth = max(DEPTH, top_k)
        num_hits = self._add_search(self._vectors, depth, weight=1.0)
        identifiers = sparse.identifiers(self._question)[:IDENTIFIERS]
        weights = dict(zip(self._vectors.indices.tolist(), self._vectors.values.tolist(), strict=True))
        heaviest = sorted(weights, key=lambda term: -weights[term])
        terms = {term: weights.get(term, 1.0) for term in list(dict.fromkeys((*identifiers, *heaviest)))[:TERMS]}
        holders = self._holders(terms, RARE, self._scope.document_ids)
        shares: Scores = {}  # of the passages of each identifier: a passage's rarest one counts
        for hits in (holders[term] for term in identifiers):
            if len(hits) <= HOLDERS:
                shares |= {hit.chunk_id: max(shares.get(hit.chunk_id, 0.0), 1 / len(hits)) for hit in hits}
        for chunk_id, share in shares.items():
            self._searched[chunk_id] += IDENTIFIED_WEIGHT * share
        in_scope = self._scope.document_ids
        if (self._num_documents if in_scope is None else len(in_scope)) > 1:
            self._add_documents(terms, holders)
        self.scores = dict(self._searched)
        while len(best := self.best(top_k)) < top_k and num_hits == depth < DEEPEST:  # many have the same words
            depth *= 4
            hits = self._search(self._vectors, depth, self._scope.document_ids)
            self._searched = defaultdict(float, {hit.chunk_id: hit.score for hit in hits} | self._searched)
            self.scores, num_hits = dict(self._searched), len(hits)
        return best

    def _holders(
        self, terms: Mapping[int, float], limit: int, document_ids: DocumentIds | None
    ) -> dict[int, list[Hit]]:
        """The passages of each term, by its weight in the question; none where there are more than `limit`."""
        if not terms:
            return {}
        vector = np.array(list(terms), np.uint32), np.array(list(terms.values()), np.float32)
        place = self._scope.tenant_id, self._scope.collection_id
        return dict(zip(terms, self._index.holders(*place, vector, limit, document_ids), strict=True))

    def _named(self, terms: Mapping[int, float], limit: int, document_ids: DocumentIds | None) -> list[list[Hit]]:
        """The documents whose name has a term, as hits of no passage: BM25 over names. None where there are more than
        `limit`."""
        place = self._scope.tenant_id, self._scope.collection_id
        names = self._chunks.named(*place, list(terms), limit, document_ids)
        rarities = sparse.rarities(np.array([name.total for name in names], np.int_), self._num_documents).tolist()
        return [
            [Hit("", document_id, weight * rarity * sparse.ALONE) for document_id in name.document_ids]
            for weight, rarity, name in zip(terms.values(), rarities, names, strict=True)
        ]

    def _add_documents(self, terms: Mapping[int, float], holders: Mapping[int, list[Hit]]) -> None:
        """holders: the passages of each rare term. A document has the terms of its name and of all its passages; others
        than rare ones count among the documents with rare ones. The nth passage of the nth document gets an nth of an
        nth, unless it has most of what the document has."""
        rare = _terms_of_documents([*holders.values(), *self._named(terms, RARE, self._scope.document_ids)])
        if not rare:
            return
        candidates = _strongest(rare, CANDIDATE_DOCUMENTS)
        common = {term: weight for term, weight in terms.items() if not holders[term]}
        holders = {**holders, **self._holders(common, COMMON, candidates)}
        of_passages: Scores = defaultdict(float)
        for hit in (hit for hits in holders.values() for hit in hits):
            of_passages[hit.chunk_id] += hit.score
        named = zip(terms, self._named(terms, COMMON, candidates), strict=True)
        of_documents = _terms_of_documents([*holders[term], *hits] for term, hits in named)
        documents = _strongest(of_documents, DOCUMENTS)
        least = {document_id: of_documents[document_id] - EQUAL for document_id in documents}
        num_as_strong = {i: sum(other >= least[i] for other in of_documents.values()) for i in documents}
        ranks: Counter[str] = Counter()
        for hit in self._search(self._vectors, DEPTH, documents):
            ranks[hit.document_id] += 1
            if of_passages[hit.chunk_id] < MOST * of_documents[hit.document_id]:
                self._searched[hit.chunk_id] += 1 / num_as_strong[hit.document_id] / ranks[hit.document_id]

    def next_hop(self, links: TitleLinks, top_k: int) -> list[str]:
        """The best once the evidence that the best so far give is added."""
        sources = self.read(self.best(SOURCES))
        fresh = next((chunk for chunk in sources if chunk.id not in self._enriched_with), None)
        if fresh is not None:
            self._enriched_with.add(fresh.id)
            self._add_search(self._embed(enriched(self._question, fresh)), DEPTH, weight=ENRICHED_WEIGHT)
        linked = self._linked(list(linked_groups(links, self._question, sources)))
        self.scores = {i: self._searched.get(i, 0.0) + linked.get(i, 0.0) for i in self._searched | linked}
        return self.best(top_k)

    def best(self, limit: int) -> list[str]:
        """The best chunks that still exist, of those with the same words the best one: what an index has of deleted
        documents takes no place, nor does the same notice in each of many documents."""
        ranked, best = sorted(self.scores, key=lambda i: (-self.scores[i], i)), dict[str, str]()
        for batch in batched(ranked, limit):
            for chunk in self.read(batch):
                best.setdefault(_words(chunk), chunk.id)
            if len(best) >= limit:
                break
        return list(best.values())[:limit]

    def read(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """The chunks that still exist, in the order of the ids given."""
        if unread := [i for i in chunk_ids if i not in self._read]:
            chunks, allowed = self._chunks.chunks(self._scope.tenant_id, unread), self._scope.document_ids
            self._read |= {c.id: c for c in chunks if allowed is None or c.document_id in allowed}
        return [self._read[i] for i in chunk_ids if i in self._read]

    def _add_search(self, vectors: Vectors, limit: int, weight: float) -> int:
        """The number of hits."""
        hits = self._search(vectors, limit, self._scope.document_ids)
        for hit in hits:
            self._searched[hit.chunk_id] += weight * hit.score
        return len(hits)

    def _search(self, vectors: Vectors, limit: int, document_ids: DocumentIds | None) -> list[Hit]:
        """A hybrid search, among documents that are in scope."""
        comparable = self._comparable
        search = partial(self._index.search, self._scope.tenant_id, self._scope.collection_id, vectors)
        if comparable is None:
            return search(limit, document_ids=document_ids)
        if document_ids is not None:
            comparable &= document_ids
        depth = max(DEPTH, limit)
        near = search(depth, "dense", comparable) if comparable else []
        return fused_hits([near, search(depth, "sparse", document_ids)])[:limit]

    def _linked(self, groups: Sequence[LinkedGroup]) -> Scores:
        """The strongest link to each chunk; of several chunks under one title,
        the nth nearest to the question by 1/n."""
        if self._scope.document_ids is not None:  # some chunks of a group may not be seen
            seen = {chunk.id for chunk in self.read(sorted({i for _, group in groups for i in group}))}
            groups = [(weight, [i for i in group if i in seen]) for weight, group in groups]
        ambiguous = sorted({i for _, group in groups if len(group) > 1 for i in group})
        if self._comparable is not None:
            ambiguous = [chunk.id for chunk in self.read(ambiguous) if chunk.document_id in self._comparable]
        dense = self._index.dense_of(self._scope.tenant_id, self._scope.collection_id, ambiguous)
        linked: Scores = defaultdict(float)
        for weight, group in groups:
            nearest = group
            if len(group) > 1:
                nearest = sorted((i for i in group if i in dense), key=lambda i: -float(dense[i] @ self._vectors.dense))
            for rank, chunk_id in enumerate(nearest, start=1):
                linked[chunk_id] = max(linked[chunk_id], weight / rank)
        return linked


def _terms_of_documents(holders: Iterable[Sequence[Hit]]) -> Scores:
    """The sum of each document's terms, each as strong as in the best of its hits. holders: the hits of each term."""
    sums: Scores = defaultdict(float)
    for hits in holders:
        best = {hit.document_id: hit.score for hit in sorted(hits, key=attrgetter("score"))}
        for document_id, score in best.items():
            sums[document_id] += score
    return sums


def _strongest(documents: Scores, count: int) -> DocumentIds:
    return frozenset(sorted(documents, key=lambda i: (-documents[i], i))[:count])


def enriched(question: str, chunk: Chunk) -> str:
    """The question as the second hop searches for it: with what was found."""
    return f"{question} {chunk.title}. {chunk.text[:ENRICH_CHARACTERS]}"


def linked_groups(links: TitleLinks, question: str, sources: Sequence[Chunk]) -> Iterator[LinkedGroup]:
    """A group for each title that the question or a source names, weighing 1 / rank of the source.

    What a passage says of its own title is no link.
    """
    for group in links.mentioned(question):
        yield 1.0, group
    for rank, source in enumerate(sources, start=1):
        for group in links.mentioned(source.text):
            if source.id not in group:
                yield 1.0 / rank, group


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
        earlier: str = "",
    ) -> list[Passage]:
        """Like Retriever.search, for a question that is cleaned here as documents are."""
        place = tenant_id, collection_id, clean_question(question)
        return await self._threads.run(partial(self._retriever.search, *place, top_k, hops, document_ids, earlier))
