"""The search index: the only door to Qdrant, as a server or in this process's memory.

One point per chunk holds a dense vector and BM25 term weights. On a server the points of all tenants share one Qdrant
collection, split by an indexed payload field, and every search is filtered. In memory each collection of each tenant is
a Qdrant collection of its own: local mode has no payload index, and filtering there costs more than searching.
"""

import threading
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from ragkv.errors import Rejected, Unavailable
from ragkv.retrieve.vectors import Point, Vectors

COLLECTION = "ragkv_chunks"
DENSE, TERMS = "dense", "terms"
BATCH = 256
DEPTH = 50
"""Candidates that each of the two searches hands to the fusion."""
TIMEOUT_S = 30
POINT_NAMESPACE = uuid.UUID("6f0d1f63-5a0c-5d0e-9a55-1c1f1f0b7a11")
_SCOPED_IDF_SINCE = (1, 19)

SearchMode = Literal["hybrid", "dense", "sparse"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found. Scores order the hits of one search and mean nothing across searches or modes."""

    chunk_id: str
    document_id: str
    score: float


class Index:
    """Vectors of chunks by tenant and collection. Safe to share between threads.

    Every method raises Unavailable when Qdrant is away or refuses. Term rarity (IDF) is counted over the collection that
    is searched, so that no tenant's text moves another's ranking; servers before Qdrant 1.19 can only count over all
    tenants: there the order of BM25 hits depends, weakly, on how common a word is elsewhere, and hits stay filtered.
    """

    def __init__(self, client: QdrantClient, *, local: bool, shown: str) -> None:
        self._client = client
        self._local = local
        self._shown = shown
        self._lock: AbstractContextManager[object] = threading.RLock() if local else nullcontext()
        self._dim: int | None = None
        self._server_scopes_idf: bool | None = None
        self._partitions: dict[tuple[str, str], str] = {}

    @classmethod
    def connect(cls, url: str, api_key: str | None = None) -> "Index":
        """The index on a Qdrant server. Connects when first used."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Api key is used with an insecure connection")
            client = QdrantClient(url=url, api_key=api_key, timeout=TIMEOUT_S, check_compatibility=False)
        return cls(client, local=False, shown=f"the Qdrant server at {url}")

    @classmethod
    def in_memory(cls) -> "Index":
        """An index of this process alone, gone when it ends. Searches take time proportional to the collection."""
        return cls(QdrantClient(location=":memory:"), local=True, shown="the in-memory index")

    def close(self) -> None:
        self._client.close()

    def ensure(self, dim: int) -> None:
        """Make the index ready for dense vectors of `dim` numbers; does nothing the second time.

        Raises Rejected when it already holds vectors of another length, as after a change of encoder.
        """
        self._dim = dim
        if self._local:
            return
        with self._reporting():
            if not self._client.collection_exists(COLLECTION):
                self._create_shared(dim)
            found = _dense_size(self._client.get_collection(COLLECTION))
        if found != dim:
            raise Rejected(
                f"{self._shown} holds vectors of {found} numbers and the encoder makes {dim}: "
                f"set RAGKV_ENCODER back, or delete its collection {COLLECTION} and ingest again"
            )

    def ready(self) -> bool:
        """Whether Qdrant answers."""
        try:
            with self._reporting():
                self._client.get_collections()
        except Unavailable:
            return False
        return True

    def upsert(self, tenant_id: str, collection_id: str, points: Sequence[Point]) -> None:
        """Add points, replacing those of the same chunks. Searchable on return."""
        with self._reporting(), self._lock:
            name = self._partition_for_writing(tenant_id, collection_id)
            for start in range(0, len(points), BATCH):
                batch = [_to_qdrant(tenant_id, collection_id, p) for p in points[start : start + BATCH]]
                self._client.upsert(name, batch, wait=True)

    def delete_document(self, tenant_id: str, document_id: str) -> None:
        """Forget a document's points, in every collection of the tenant."""
        with self._reporting(), self._lock:
            condition = _where(tenant_id=tenant_id, document_id=document_id)
            for name in self._partitions_of(tenant_id):
                self._client.delete(name, models.FilterSelector(filter=condition), wait=True)

    def delete_collection(self, tenant_id: str, collection_id: str) -> None:
        """Forget all points of a tenant's collection."""
        with self._reporting(), self._lock:
            if self._local:
                if name := self._partitions.pop((tenant_id, collection_id), None):
                    self._client.delete_collection(name)
            elif self._client.collection_exists(COLLECTION):
                condition = _where(tenant_id=tenant_id, collection_id=collection_id)
                self._client.delete(COLLECTION, models.FilterSelector(filter=condition), wait=True)

    def search(
        self, tenant_id: str, collection_id: str, vectors: Vectors, limit: int, mode: SearchMode = "hybrid"
    ) -> list[Hit]:
        """The best `limit` chunks of a collection, best first; none when there is no such collection.

        hybrid: the best DEPTH of each kind of search, fused by reciprocal rank (Cormack, Clarke and Büttcher, SIGIR
        2009) inside Qdrant. A question without a single term is searched by its dense vector alone.
        """
        return self.search_many(tenant_id, collection_id, [vectors], limit, mode)[0]

    def search_many(
        self, tenant_id: str, collection_id: str, queries: Sequence[Vectors], limit: int, mode: SearchMode = "hybrid"
    ) -> list[list[Hit]]:
        """`search` for several queries, in one round trip."""
        with self._reporting(), self._lock:
            name = self._partition(tenant_id, collection_id)
            if name is None or not queries:
                return [[] for _ in queries]
            scope = None if self._local else _where(tenant_id=tenant_id, collection_id=collection_id)
            params = self._idf_params(scope)
            requests = [_request(vectors, limit, mode, scope, params) for vectors in queries]
            try:
                responses = self._client.query_batch_points(name, requests)
            except UnexpectedResponse as error:
                if error.status_code == HTTPStatus.NOT_FOUND:
                    return [[] for _ in queries]
                raise
        return [[_hit(point) for point in response.points] for response in responses]

    def dense_of(self, tenant_id: str, collection_id: str, chunk_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The dense vectors of those chunks that the collection holds."""
        with self._reporting(), self._lock:
            name = self._partition(tenant_id, collection_id)
            if name is None or not chunk_ids:
                return {}
            by_point = {_point_id(tenant_id, collection_id, chunk_id): chunk_id for chunk_id in chunk_ids}
            found = self._client.retrieve(name, list(by_point), with_payload=False, with_vectors=[DENSE])
        return {by_point[str(record.id)]: _dense(record) for record in found}

    def _create_shared(self, dim: int) -> None:
        try:
            self._create(COLLECTION, dim)
        except UnexpectedResponse as error:
            if error.status_code != HTTPStatus.CONFLICT:  # another process was first
                raise
        for field in ("tenant_id", "collection_id", "document_id"):
            schema = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=field == "tenant_id")
            self._client.create_payload_index(COLLECTION, field, schema, wait=True)

    def _create(self, name: str, dim: int) -> None:
        self._client.create_collection(
            name,
            vectors_config={DENSE: models.VectorParams(size=dim, distance=models.Distance.COSINE)},
            sparse_vectors_config={TERMS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )

    def _partition_for_writing(self, tenant_id: str, collection_id: str) -> str:
        assert self._dim is not None, "ensure() comes first"
        if not self._local:
            return COLLECTION
        scope = (tenant_id, collection_id)
        if scope not in self._partitions:
            name = f"{COLLECTION}_{uuid.uuid4().hex}"
            self._create(name, self._dim)
            self._partitions[scope] = name
        return self._partitions[scope]

    def _partition(self, tenant_id: str, collection_id: str) -> str | None:
        return self._partitions.get((tenant_id, collection_id)) if self._local else COLLECTION

    def _partitions_of(self, tenant_id: str) -> list[str]:
        if self._local:
            return [name for (tenant, _), name in self._partitions.items() if tenant == tenant_id]
        return [COLLECTION] if self._client.collection_exists(COLLECTION) else []

    def _idf_params(self, scope: models.Filter | None) -> models.SearchParams | None:
        """Counts IDF over the scope alone, where it is not a Qdrant collection by itself and the server can."""
        if scope is None or not self._scopes_idf():
            return None
        return models.SearchParams(idf=models.IdfCorpusParams(corpus=scope))

    def _scopes_idf(self) -> bool:
        if self._server_scopes_idf is None:
            self._server_scopes_idf = _version(self._client.info().version) >= _SCOPED_IDF_SINCE
        return self._server_scopes_idf

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except UnexpectedResponse as error:
            hint = ": check RAGKV_QDRANT_API_KEY" if error.status_code in (401, 403) else ""
            raise Unavailable(f"{self._shown} refused the request{hint} ({error.status_code}: {error})") from error
        except (ApiException, QdrantException, OSError) as error:
            raise Unavailable(f"{self._shown} does not answer ({error}): check that it runs") from error


def _request(
    vectors: Vectors, limit: int, mode: SearchMode, scope: models.Filter | None, params: models.SearchParams | None
) -> models.QueryRequest:
    dense = vectors.dense.tolist()
    terms = _sparse(vectors)
    if mode == "sparse":
        return models.QueryRequest(
            query=terms, using=TERMS, filter=scope, params=params, limit=limit, with_payload=_PAYLOAD
        )
    if mode == "dense" or not terms.indices:
        return models.QueryRequest(query=dense, using=DENSE, filter=scope, limit=limit, with_payload=_PAYLOAD)
    depth = max(DEPTH, limit)
    return models.QueryRequest(
        prefetch=[
            models.Prefetch(query=dense, using=DENSE, filter=scope, limit=depth),
            models.Prefetch(query=terms, using=TERMS, filter=scope, params=params, limit=depth),
        ],
        query=models.FusionQuery(fusion=models.Fusion.RRF),
        filter=scope,
        limit=limit,
        with_payload=_PAYLOAD,
    )


_PAYLOAD = ["chunk_id", "document_id"]


def _hit(point: models.ScoredPoint) -> Hit:
    payload = point.payload or {}
    return Hit(payload["chunk_id"], payload["document_id"], point.score)


def _to_qdrant(tenant_id: str, collection_id: str, point: Point) -> models.PointStruct:
    vector: dict[str, Any] = {DENSE: point.vectors.dense.tolist()}
    if point.vectors.indices.size:
        vector[TERMS] = _sparse(point.vectors)
    payload = {
        "tenant_id": tenant_id,
        "collection_id": collection_id,
        "document_id": point.document_id,
        "chunk_id": point.chunk_id,
        "title": point.title,
    }
    return models.PointStruct(
        id=_point_id(tenant_id, collection_id, point.chunk_id),
        vector=vector,
        payload=payload,
    )


def _point_id(tenant_id: str, collection_id: str, chunk_id: str) -> str:
    """Of the chunk in its collection: the same chunk in two collections is two points."""
    return str(uuid.uuid5(POINT_NAMESPACE, f"{tenant_id}\x00{collection_id}\x00{chunk_id}"))


def _sparse(vectors: Vectors) -> models.SparseVector:
    return models.SparseVector(indices=vectors.indices.tolist(), values=vectors.values.tolist())


def _dense(record: models.Record) -> NDArray[np.float32]:
    assert isinstance(record.vector, dict), "vectors are named"
    return np.asarray(record.vector[DENSE], dtype=np.float32)


def _dense_size(info: models.CollectionInfo) -> int:
    vectors = info.config.params.vectors
    assert isinstance(vectors, dict), "vectors are named"
    return vectors[DENSE].size


def _where(**fields: str) -> models.Filter:
    return models.Filter(
        must=[models.FieldCondition(key=key, match=models.MatchValue(value=value)) for key, value in fields.items()]
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
