"""The search index on a Qdrant server: the only door to Qdrant.

One point per chunk holds a dense vector and BM25 term weights. The points of all tenants share one Qdrant collection,
split by an indexed payload field, and every search is filtered.
"""

import logging
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from ragkv.errors import Rejected, Unavailable
from ragkv.ids import batched
from ragkv.retrieve.index import DEPTH, DocumentIds, Held, Hit, Point, SearchMode, Vectors, fused_hits
from ragkv.retrieve.sparse import SparseVector
from ragkv.threads import CircuitBreaker
from ragkv.urls import without_secrets

log = logging.getLogger(__name__)

COLLECTION = "ragkv_chunks"
DENSE, TERMS = "dense", "terms"
BATCH = 256
SCROLL = 1000
TIMEOUT_S = 30
"""For connecting, for the next word of an answer, and for its body."""
MAX_ANSWER_BYTES = 256 * 2**20
_AWAY = "the Qdrant server (RAGKV_QDRANT_URL) does not answer: check that it runs"
POINT_NAMESPACE = uuid.UUID("6f0d1f63-5a0c-5d0e-9a55-1c1f1f0b7a11")
MOST_NAMED = 2000
"""Documents that one request names: 70 kB of ids."""
WIDER = (4, 40)
"""Searches that name none ask for so many times the hits that are wanted, one after the other."""
_SCOPED_IDF_SINCE = (1, 19)
_HINTS = dict.fromkeys((401, 403), "check RAGKV_QDRANT_API_KEY") | {
    404: f"check RAGKV_QDRANT_URL; where its collection {COLLECTION} is gone, `ragkv fsck --repair` writes it anew, and "
    "so does a worker within two minutes"
}

Search = Callable[[int, DocumentIds | None], list[Hit]]
"""The best hits of one kind of search, up to a limit, of these documents or of all."""


class QdrantIndex:
    """An `Index` on a Qdrant server, which every process of the service may share. Connects when first used.

    Servers before Qdrant 1.19 can only count term rarity over all tenants: there the order of BM25 hits depends,
    weakly, on how common a word is elsewhere, and hits stay filtered.

    shown: names the server in the log. Clients are not told where it is.
    """

    def __init__(self, client: QdrantClient, shown: str) -> None:
        self._client = client
        self._shown = shown
        self._server_scopes_idf: bool | None = None
        self._breaker = CircuitBreaker(TIMEOUT_S, _AWAY)

    @classmethod
    def connect(cls, url: str, api_key: str | None = None) -> "QdrantIndex":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Api key is used with an insecure connection")
            client = QdrantClient(
                url=url,
                api_key=api_key,
                timeout=TIMEOUT_S,
                check_compatibility=False,
                event_hooks={"response": [_Bounded.bound]},
                transport=None if url.startswith("https:") else httpx.HTTPTransport(),  # which uses no proxy
            )
        return cls(client, f"the Qdrant server at {without_secrets(url)}")

    def close(self) -> None:
        self._client.close()

    def ensure(self, dim: int) -> None:
        with self._reporting():
            if not self._client.collection_exists(COLLECTION):
                try:
                    self._client.create_collection(
                        COLLECTION,
                        vectors_config={DENSE: models.VectorParams(size=dim, distance=models.Distance.COSINE)},
                        sparse_vectors_config={TERMS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                    )
                except UnexpectedResponse as error:
                    if error.status_code != HTTPStatus.CONFLICT:  # another process was first
                        raise
            collection = self._client.get_collection(COLLECTION)
            for field in _PLACE:
                if field not in collection.payload_schema:  # just created; or who created it was killed before this
                    is_tenant = field == "tenant_id"
                    schema = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=is_tenant)
                    self._client.create_payload_index(COLLECTION, field, schema, wait=True)
        vectors = collection.config.params.vectors
        assert isinstance(vectors, dict), "vectors are named"
        size = vectors[DENSE].size
        if size != dim:
            raise Rejected(
                f"the Qdrant server holds vectors of length {size}, but the encoder makes vectors of length {dim}: set "
                f"RAGKV_ENCODER back; or delete its collection {COLLECTION}, run `ragkv fsck --repair`, and start "
                "again: "
                "documents are then found only by their words until a worker has read them again"
            )

    def ping(self) -> None:
        """Check the connection. Raises Unavailable unless Qdrant answers and has the collection."""
        with self._reporting():
            self._client.get_collection(COLLECTION)

    def has_points(self) -> bool:
        """Whether Qdrant has the collection, and anything in it."""
        with self._reporting():
            is_there = self._client.collection_exists(COLLECTION)
            return is_there and bool(self._client.get_collection(COLLECTION).points_count)

    def upsert(self, tenant_id: str, collection_id: str, points: Sequence[Point]) -> None:
        with self._reporting():
            for portion in batched(points, BATCH):
                batch = [_to_qdrant(tenant_id, collection_id, point) for point in portion]
                self._client.upsert(COLLECTION, batch, wait=True)

    def replace(self, tenant_id: str, collection_id: str, document_ids: Sequence[str], points: Sequence[Point]) -> None:
        self.upsert(tenant_id, collection_id, points)
        present = models.HasIdCondition(has_id=[_point_id(tenant_id, collection_id, p.chunk_id) for p in points])
        scope = _where(tenant_id=tenant_id, collection_id=collection_id)
        for batch in batched(document_ids, BATCH):
            self._delete(models.Filter(must=[_within(scope, frozenset(batch))], must_not=[present]))

    def delete_documents(self, document_ids: Sequence[str]) -> None:
        """Forget the points of these documents, of whatever tenant."""
        for batch in batched(document_ids, BATCH):
            self._delete(models.Filter(must=[_of_documents(batch)]))

    def delete_from_collection(self, tenant_id: str, collection_id: str, document_ids: Sequence[str]) -> None:
        self.replace(tenant_id, collection_id, document_ids, ())

    def delete_collection(self, tenant_id: str, collection_id: str) -> None:
        self._delete(_where(tenant_id=tenant_id, collection_id=collection_id))

    def search(
        self,
        tenant_id: str,
        collection_id: str,
        vectors: Vectors,
        limit: int,
        mode: SearchMode = "hybrid",
        document_ids: DocumentIds | None = None,
    ) -> list[Hit]:
        scope = _where(tenant_id=tenant_id, collection_id=collection_id)
        if document_ids is None or len(document_ids) <= MOST_NAMED:
            return self._query(scope, [vectors], limit, mode, document_ids)[0]

        def best(kind: SearchMode, depth: int) -> list[Hit]:
            return best_among(
                lambda most, named: self._query(scope, [vectors], most, kind, named)[0], depth, document_ids
            )

        if mode != "hybrid" or not vectors.indices.size:
            return best("dense" if mode == "hybrid" else mode, limit)
        depth = max(DEPTH, limit)
        return fused_hits([best("dense", depth), best("sparse", depth)])[:limit]

    def holders(
        self,
        tenant_id: str,
        collection_id: str,
        terms: SparseVector,
        limit: int,
        document_ids: DocumentIds | None = None,
    ) -> list[list[Hit]]:
        no_dense, (indices, values) = np.zeros(0, np.float32), terms
        alone = [Vectors(no_dense, indices[i : i + 1], values[i : i + 1]) for i in range(len(indices))]
        if document_ids is None or len(document_ids) <= MOST_NAMED:
            scope = _where(tenant_id=tenant_id, collection_id=collection_id)
            by_term = self._query(scope, alone, limit + 1, "sparse", document_ids)
        else:
            by_term = [self.search(tenant_id, collection_id, v, limit + 1, "sparse", document_ids) for v in alone]
        return [hits if len(hits) <= limit else [] for hits in by_term]

    def _query(
        self,
        scope: models.Filter,
        questions: Sequence[Vectors],
        limit: int,
        mode: SearchMode,
        document_ids: DocumentIds | None,
    ) -> list[list[Hit]]:
        """The hits of each question, in one request."""
        with self._reporting():
            if self._server_scopes_idf is None:
                version = self._client.info().version.split(".")[:2]
                self._server_scopes_idf = tuple(int(part) for part in version if part.isdigit()) >= _SCOPED_IDF_SINCE
            # IDF is counted over the scope alone, where the server can.
            idf = models.SearchParams(idf=models.IdfCorpusParams(corpus=scope)) if self._server_scopes_idf else None
            within = _within(scope, document_ids)
            requests = [_request(vectors, limit, mode, within, idf) for vectors in questions]
            responses = self._client.query_batch_points(COLLECTION, requests)
        return [
            [
                Hit(payload["chunk_id"], payload["document_id"], point.score)
                for point in response.points
                if (payload := point.payload)
            ]
            for response in responses
        ]

    def dense_of(self, tenant_id: str, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        if not chunk_ids:
            return {}
        with self._reporting():
            by_point = {_point_id(tenant_id, collection_id, chunk_id): chunk_id for chunk_id in chunk_ids}
            records = self._client.retrieve(COLLECTION, list(by_point), with_payload=False, with_vectors=[DENSE])
        return {
            by_point[str(record.id)]: np.asarray(record.vector[DENSE], dtype=np.float32)
            for record in records
            if isinstance(record.vector, dict) and DENSE in record.vector
        }

    def held(self) -> dict[Held, int]:
        """Number of points of each document of each collection. Reads the payloads of all points."""
        counts: Counter[Held] = Counter()
        offset: Any = None
        with self._reporting():
            while True:
                records, offset = self._client.scroll(COLLECTION, limit=SCROLL, offset=offset, with_payload=_PLACE)
                payloads = (record.payload or {} for record in records)
                counts.update(Held(*(payload[field] for field in _PLACE)) for payload in payloads)
                if offset is None:
                    return dict(counts)

    def _delete(self, condition: models.Filter) -> None:
        with self._reporting():
            if self._client.collection_exists(COLLECTION):
                self._client.delete(COLLECTION, models.FilterSelector(filter=condition), wait=True)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            with self._breaker.guarding():
                yield
        except UnexpectedResponse as error:
            log.warning("%s refused a request: %s", self._shown, error)
            hint = _HINTS.get(error.status_code or 0, "its answer is in the log")
            raise Unavailable(f"the Qdrant server refused the request ({error.status_code}): {hint}") from error
        except (ApiException, QdrantException, OSError) as error:
            log.warning("%s does not answer: %s", self._shown, error)
            raise Unavailable(_AWAY) from error


class _Bounded(httpx.SyncByteStream):
    """A body that has to be whole in time: the client's own limit is for each of its pieces."""

    def __init__(self, body: httpx.SyncByteStream) -> None:
        self._body = body

    @classmethod
    def bound(cls, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.SyncByteStream), "the client is no asynchronous one"
        response.stream = cls(response.stream)

    def __iter__(self) -> Iterator[bytes]:
        until, num_bytes = time.monotonic() + TIMEOUT_S, 0
        for piece in self._body:
            num_bytes += len(piece)
            if time.monotonic() > until:
                raise httpx.ReadTimeout("the answer drips") from TimeoutError()
            if num_bytes > MAX_ANSWER_BYTES:
                raise httpx.DecodingError(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
            yield piece

    def close(self) -> None:
        self._body.close()


def _request(
    vectors: Vectors, limit: int, mode: SearchMode, scope: models.Filter, params: models.SearchParams | None
) -> models.QueryRequest:
    searches: dict[str, dict[str, Any]] = {
        "dense": {"query": vectors.dense.tolist(), "using": DENSE},
        "sparse": {"query": _sparse(vectors), "using": TERMS, "params": params},
    }
    if mode == "hybrid" and not vectors.indices.size:
        mode = "dense"
    if mode != "hybrid":
        return models.QueryRequest(**searches[mode], filter=scope, limit=limit, with_payload=_PAYLOAD)
    depth = max(DEPTH, limit)
    return models.QueryRequest(
        prefetch=[models.Prefetch(**search, filter=scope, limit=depth) for search in searches.values()],
        query=models.FusionQuery(fusion=models.Fusion.RRF),
        limit=limit,
        with_payload=_PAYLOAD,
    )


_PAYLOAD = ["chunk_id", "document_id"]
_PLACE = ["tenant_id", "collection_id", "document_id"]


def _to_qdrant(tenant_id: str, collection_id: str, point: Point) -> models.PointStruct:
    vector: dict[str, Any] = {}
    if point.vectors.dense.size:
        vector[DENSE] = point.vectors.dense.tolist()
    if point.vectors.indices.size:
        vector[TERMS] = _sparse(point.vectors)
    payload = {
        "tenant_id": tenant_id,
        "collection_id": collection_id,
        "document_id": point.document_id,
        "chunk_id": point.chunk_id,
        "title": point.title,
    }
    return models.PointStruct(id=_point_id(tenant_id, collection_id, point.chunk_id), vector=vector, payload=payload)


def _point_id(tenant_id: str, collection_id: str, chunk_id: str) -> str:
    """Id of the chunk's point in its collection: the same chunk in two collections is two points."""
    return str(uuid.uuid5(POINT_NAMESPACE, f"{tenant_id}\x00{collection_id}\x00{chunk_id}"))


def _sparse(vectors: Vectors) -> models.SparseVector:
    return models.SparseVector(indices=vectors.indices.tolist(), values=vectors.values.tolist())


def _where(**fields: str) -> models.Filter:
    return models.Filter(
        must=[models.FieldCondition(key=key, match=models.MatchValue(value=value)) for key, value in fields.items()]
    )


def _within(scope: models.Filter, document_ids: DocumentIds | None) -> models.Filter:
    if document_ids is None:
        return scope
    return models.Filter(must=[scope, _of_documents(sorted(document_ids))])


def _of_documents(document_ids: Sequence[str]) -> models.FieldCondition:
    return models.FieldCondition(key="document_id", match=models.MatchAny(any=list(document_ids)))


def best_among(search: Search, limit: int, document_ids: DocumentIds) -> list[Hit]:
    """The best `limit` hits of documents that are too many to be named at once.

    Most of a collection's documents are among its best hits, too: those of all documents are looked through first.
    Where that does not find enough, the documents are named in as many requests as it takes.
    """
    for factor in WIDER:
        hits = search(factor * limit, None)
        hits_within = [hit for hit in hits if hit.document_id in document_ids]
        if len(hits_within) >= limit or len(hits) < factor * limit:
            return hits_within[:limit]
    named = sorted(document_ids)
    portions = [frozenset(portion) for portion in batched(named, MOST_NAMED)]
    return sorted((hit for portion in portions for hit in search(limit, portion)), key=lambda hit: -hit.score)[:limit]
