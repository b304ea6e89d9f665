"""Collections: named sets of a tenant's documents."""

from collections.abc import Generator
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from ragkv.errors import Conflict, Rejected, Unavailable
from ragkv.ids import new_id
from ragkv.service.audit.statements import note_deletions
from ragkv.service.base.database import Database, Session, advisory_lock
from ragkv.service.base.long_work import timed
from ragkv.service.base.page import Name, from_cursor, rows_behind, view_from
from ragkv.service.base.tables import CollectionRow, DataSourceRow
from ragkv.service.base.tenants import (
    DEFAULT_COLLECTION,
    collection_of,
    collection_ref,
    find_collection,
    known_collection,
)
from ragkv.service.collections.statements import BY_NAME, collection_facts, sizes_in
from ragkv.service.data_sources.statements import forget_data_sources_of
from ragkv.service.documents.removal import Removal, forget_answers, remove_documents, uploads_lock
from ragkv.service.documents.statements import documents_where, ids_of, number_of
from ragkv.service.evaluations.statements import forget_runs_about
from ragkv.service.questions.statements import forget_questions_about
from ragkv.text import clean_name, storable

if TYPE_CHECKING:
    from ragkv.service.answer_cache.ring import AnswerRing

BATCH_DOCUMENTS = 200
BATCH_CHUNKS = 500
"""The most that one transaction removes: on SQLite no other writes meanwhile. A larger document goes as a whole."""
BATCH_QUESTIONS = 500
BATCH_EVALUATIONS = 4

Cosine = Annotated[float, Meta(ge=0.5, le=1)]
Seconds = Annotated[int, Meta(ge=1, le=30 * 24 * 3600)]


class AnswerCacheView(msgspec.Struct, frozen=True, kw_only=True):
    """The answer cache of a collection. Its counters are null in lists, and while Redis is unavailable."""

    enabled: Annotated[bool, "Whether earlier answers are used again."]
    threshold: Annotated[float, "Minimum cosine similarity of a question to an earlier one."]
    ttl_s: Annotated[int, "Lifetime of a cached answer in seconds."]
    hits: Annotated[int | None, "Questions answered from the cache since the collection was created."] = None
    misses: Annotated[int | None, "Questions not found in the cache since the collection was created."] = None
    skipped: Annotated[int | None, "Questions that were not looked up because they refer to the present day."] = None
    hit_rate: Annotated[float | None, "`hits` as a share of `hits` and `misses`; null before the first question."] = (
        None
    )


class AnswerCachePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to an answer cache. Omitted fields are unchanged."""

    enabled: Annotated[bool | None, "Whether earlier answers are used again."] = None
    threshold: Annotated[Cosine | None, "Minimum cosine similarity of a question to an earlier one."] = None
    ttl_s: Annotated[Seconds | None, "Lifetime of a cached answer in seconds."] = None


class CollectionView(msgspec.Struct, frozen=True, kw_only=True):
    """A collection and the size of its contents."""

    id: str
    name: Annotated[str, "Name of the collection."]
    documents: Annotated[int, "Number of documents."]
    chunks: Annotated[int, "Number of chunks."]
    tokens: Annotated[int, "Number of tokens in all chunks."]
    bytes: Annotated[int, "Size of the uploaded files in bytes."]
    created_at: datetime
    answer_cache: Annotated[AnswerCacheView, "Answer cache of the collection."]


class CollectionPage(msgspec.Struct, frozen=True):
    """A page of collections, ordered by name."""

    items: Annotated[list[CollectionView], "Collections, ordered by name."]
    next: str | None


def make_collection(tenant_id: str, name: str, database: Database) -> CollectionView:
    """Create a collection. Raises Rejected for a bad name, Conflict for one that is taken."""
    with database.writing() as session:
        collection_id = insert_collection(session, tenant_id, name)
    return collection_view(tenant_id, collection_id, database)


def insert_collection(session: Session, tenant_id: str, name: str) -> str:
    """A new collection's id. Raises like `make_collection`."""
    cleaned = clean_name(name)
    _refuse_pathless(cleaned)
    advisory_lock(session, _names_of(tenant_id))
    _refuse_taken(session, tenant_id, cleaned)
    row = CollectionRow(id=new_id(), tenant_id=tenant_id, name=cleaned)
    session.add(row)
    session.flush()
    return row.id


def collection_view(tenant_id: str, collection: str, database: Database) -> CollectionView:
    """A collection by id or name. Raises NotFound."""
    with database.reading() as session:
        _, row = find_collection(session, tenant_id, collection)
        return _view(*session.execute(collection_facts(tenant_id).where(CollectionRow.id == row.id)).one())


def collection_with_counts(
    tenant_id: str, collection: str, database: Database, answer_ring: "AnswerRing"
) -> CollectionView:
    """`collection_view`, with what its answer cache did."""
    view = collection_view(tenant_id, collection, database)
    try:
        counted = answer_ring.counts(tenant_id, view.id)
    except Unavailable:
        return view
    hits, misses = counted.get("hits", 0), counted.get("misses", 0)
    rate = hits / (hits + misses) if hits + misses else None
    numbers = {"hits": hits, "misses": misses, "skipped": counted.get("skipped", 0), "hit_rate": rate}
    return msgspec.structs.replace(view, answer_cache=msgspec.structs.replace(view.answer_cache, **numbers))


def list_collections(tenant_id: str, limit: int, cursor: str | None, database: Database) -> CollectionPage:
    """A page of a tenant's collections, by name. Raises Rejected for an invalid cursor."""
    position = position_by_name(cursor)
    with database.reading() as session:
        collections = rows_behind(session, collection_facts(tenant_id), BY_NAME, limit, position)
        items = [_view(*facts) for facts in collections.items]
    return CollectionPage(items, collections.next(lambda facts: facts[0].name))


def position_by_name(cursor: str | None) -> tuple[str] | None:
    """The position of a cursor among collections by name. Raises Rejected for an invalid cursor."""
    after = from_cursor(cursor, Name)
    return None if after is None else (storable(after),)


def num_documents(tenant_id: str, database: Database) -> int:
    """Documents of all collections of a tenant."""
    return database.scalar(number_of(documents_where(tenant_id))) or 0


def amend_collection(
    tenant_id: str, collection: str, database: Database, name: str | None = None, cache: AnswerCachePatch | None = None
) -> CollectionView:
    """Rename a collection, configure its answer cache. None: unchanged.

    Raises NotFound, Rejected for a bad name, Conflict for one that is taken, and for another of the default collection.
    """
    collection_id = collection_ref(tenant_id, collection, database).collection_id
    with database.writing() as session:
        advisory_lock(session, _names_of(tenant_id))
        row = known_collection(session, collection_id, lock=True)
        if name is not None and (cleaned := clean_name(name)) != row.name:
            _refuse_pathless(cleaned)
            _refuse_default(row)
            _refuse_taken(session, tenant_id, cleaned)
            row.name = cleaned
        if cache is not None:
            row.cache_answers = row.cache_answers if cache.enabled is None else cache.enabled
            row.cache_threshold = row.cache_threshold if cache.threshold is None else cache.threshold
            row.cache_ttl_s = row.cache_ttl_s if cache.ttl_s is None else cache.ttl_s
    return collection_view(tenant_id, collection_id, database)


def delete_in_batches(tenant_id: str, collection: str, removal: Removal) -> Generator[float, None, None]:
    """Remove a collection with its documents, questions and kept answers. Raises NotFound, Conflict for the default
    collection.

    The collection is gone when the iterator ends. Each step removes its data sources, or one batch, and yields the
    seconds it took: leave as much time to others. When the index is away it raises Unavailable and the collection
    stays, perhaps with fewer documents, as it does when the iterator is closed early or the process killed: delete it
    again.
    """
    with removal.database.reading() as session:
        _, row = find_collection(session, tenant_id, collection)
    _refuse_default(row)
    collection_id = row.id
    with removal.database.writing() as session:  # or their syncs would bring documents back meanwhile
        forgotten = session.connection().execute(forget_data_sources_of(collection_id)).scalars().all()
        note_deletions(session, DataSourceRow, forgotten)
    if forgotten:
        removal.when_changed()
        yield 0.0
    for _, took_s in timed(lambda: _delete_some(tenant_id, collection_id, removal)):
        yield took_s
    forget_answers(tenant_id, collection_id, removal)
    retriever = removal.retriever()
    if retriever is not None:  # that of other processes forgets it at its next `forget_deleted`
        retriever.forget(tenant_id, collection_id)


def _delete_some(tenant_id: str, collection_id: str, removal: Removal) -> int:
    """Remove a batch of documents, or else of questions, or of evaluations, or else the collection itself. 0 once it is
    gone."""
    sizes = removal.database.rows(sizes_in(collection_id, BATCH_DOCUMENTS))
    sums = accumulate(chunks for _, chunks in sizes)
    fitting = [document_id for (document_id, _), total in zip(sizes, sums, strict=True) if total <= BATCH_CHUNKS]
    if batch := fitting or [document_id for document_id, _ in sizes[:1]]:  # one, if the first is too large
        remove_documents(tenant_id, collection_id, batch, removal)
        return len(batch)
    questions = forget_questions_about(collection_id, BATCH_QUESTIONS)
    for statement in (questions, forget_runs_about(collection_id, BATCH_EVALUATIONS)):
        if number := removal.database.execute(statement):
            removal.when_changed()
            return number
    with removal.database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))  # uploads hold it: documents may have come meanwhile
        if session.scalars(ids_of(documents_where(tenant_id, collection_id)).limit(1)).one_or_none() is not None:
            return 1
        session.delete(known_collection(session, collection_id))
        note_deletions(session, CollectionRow, [collection_id])
    removal.when_changed()
    return 0


def _refuse_pathless(name: str) -> None:
    """Raise Rejected for a name that no path could hold. Collections that have such a name keep it."""
    if name in (".", ".."):
        raise Rejected(f"the name {name!r} is a step in paths, which could not name the collection: choose another")
    if "/" in name:
        raise Rejected(f"the name {name!r} has a slash, so that paths could not name the collection: leave it out")


def _refuse_default(row: CollectionRow) -> None:
    if row.name == DEFAULT_COLLECTION:
        raise Conflict("the default collection cannot be renamed or deleted: requests without a collection use it")


def _refuse_taken(session: Session, tenant_id: str, name: str) -> None:
    if session.execute(collection_of(tenant_id, name)).one_or_none() is not None:
        raise Conflict(f"a collection named {name!r} already exists")


def _names_of(tenant_id: str) -> str:
    return f"collections of {tenant_id}"


def _view(row: CollectionRow, documents: int, chunks: int, tokens: int, num_bytes: int) -> CollectionView:
    return view_from(
        CollectionView,
        row,
        documents=documents,
        chunks=int(chunks),
        tokens=int(tokens),
        bytes=int(num_bytes),
        answer_cache=AnswerCacheView(enabled=row.cache_answers, threshold=row.cache_threshold, ttl_s=row.cache_ttl_s),
    )
