"""KV of a tenant, its collections and documents: usage, pinning, eviction and rebuild."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from ragkv.errors import Conflict, NotFound
from ragkv.files_io import resident_bytes
from ragkv.observe.metrics import engine_cache_use
from ragkv.service.base.database import BESIDE_NEW_ROWS, Database, Session, advisory_lock
from ragkv.service.base.kv_disk import DISK, REMOTE
from ragkv.service.base.page import MAX_PAGE, all_pages, rows_behind
from ragkv.service.base.queue import Queue
from ragkv.service.base.status import Status
from ragkv.service.base.tables import CollectionRow, DocumentRow, KVEntryRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.collections.collections import position_by_name
from ragkv.service.collections.statements import BY_NAME, pins_of_collections
from ragkv.service.documents.changes import Queued, queue_again
from ragkv.service.documents.documents import DocumentView, document_view, find_document
from ragkv.service.documents.job_statements import KEEP, REBUILD, new_job
from ragkv.service.documents.requeue import enqueue
from ragkv.service.documents.statements import number_of, precompute_again
from ragkv.service.kv_admin.entry_statements import (
    KVOwner,
    chunks_by_kv,
    document_with_kv,
    documents_without_kv,
    entries_of,
    kv_by,
    kv_by_tenant,
    kv_of,
    tenants_with_kv,
)
from ragkv.service.kv_admin.eviction import check_pins, limit_now
from ragkv.service.statistics.summary import tier_use
from ragkv.service.statistics.views import HitRate, TierLoads
from ragkv.settings import Settings

if TYPE_CHECKING:
    from ragkv.kv.key import KeyMaker
    from ragkv.kv.remote import ObjectStore
    from ragkv.kv.store import KVStore

MAX_LOOKED_AT = 20_000
"""Files of one tenant whose share of memory is worth the time to look."""
GIB = 2**30


class KVAmount(msgspec.Struct, frozen=True):
    """An amount of stored KV."""

    files: Annotated[int, "Number of KV files."]
    bytes: Annotated[int, "Size of the KV files in bytes."]
    tokens: Annotated[int, "Number of tokens whose KV is stored."]


class HostTier(msgspec.Struct, frozen=True):
    """The part of the tenant's KV files in the page cache of the operating system, which need no disk access."""

    bytes: Annotated[
        int | None, "Size in bytes; null if the operating system does not report it, or if there are too many files."
    ]


class DeviceTier(msgspec.Struct, frozen=True):
    """The KV cache of the engine, shared by all tenants. Values are null for an engine behind a URL, and where vLLM
    takes what a GPU has free."""

    capacity_bytes: Annotated[int | None, "Size of the engine's KV cache in bytes."]
    used_bytes: Annotated[
        int | None, "Bytes in use by prompts that are being answered; null until the engine has reported it."
    ]


class KVTiers(msgspec.Struct, frozen=True):
    """KV by tier. What is in host memory is also on disk; what is in the object store may be on this disk too."""

    device: Annotated[DeviceTier, "KV cache of the engine."]
    host: Annotated[HostTier, "KV files in host memory."]
    disk: Annotated[KVAmount, "KV files on disk."]
    remote: Annotated[KVAmount | None, "KV files in the object store; null without one."]


class CollectionKV(msgspec.Struct, frozen=True):
    """The KV of one collection. KV that two collections share counts in both."""

    id: str
    name: Annotated[str, "Name of the collection."]
    pinned: Annotated[bool, "Whether the collection's KV is pinned."]
    files: Annotated[int, "Number of KV files."]
    bytes: Annotated[int, "Size of the KV files in bytes."]
    tokens: Annotated[int, "Number of tokens whose KV is stored."]


class CollectionKVPage(msgspec.Struct, frozen=True):
    """A page of collections with their KV, ordered by name."""

    items: list[CollectionKV]
    next: str | None


NO_COLLECTIONS = CollectionKVPage([], None)


class TenantKV(msgspec.Struct, frozen=True):
    """The KV of one tenant."""

    name: Annotated[str, "Name of the tenant."]
    files: Annotated[int, "Number of KV files."]
    bytes: Annotated[int, "Size of the KV files in bytes."]
    tokens: Annotated[int, "Number of tokens whose KV is stored."]


class KVOverview(msgspec.Struct, frozen=True):
    """An overview of a tenant's KV."""

    tiers: Annotated[KVTiers, "KV by tier."]
    collections: Annotated[list[CollectionKV], "KV by collection: a page of collections, ordered by name."]
    next: str | None
    tenants: Annotated[
        list[TenantKV] | None,
        "KV by tenant; null unless the API key belongs to the default tenant and has the scope `admin`.",
    ]
    limit_bytes: Annotated[int | None, "Maximum size of all tenants' KV in bytes; null for no limit."]
    last_used_at: datetime | None
    hit_rate: Annotated[
        HitRate | None, "Origin of prompt tokens in the last 24 hours; null without stitched questions."
    ]
    loads: Annotated[
        list[TierLoads],
        "Durations of placing KV in the last 24 hours, by the farthest tier that a question's KV came from.",
    ]


class HeldKV(msgspec.Struct, frozen=True, kw_only=True):
    """The KV of a document or a collection."""

    pinned: Annotated[bool, "Whether the KV is pinned."]
    files: Annotated[int, "Number of KV files."]
    bytes: Annotated[int, "Size of the KV files in bytes."]
    tokens: Annotated[int, "Number of tokens whose KV is stored."]
    chunks: Annotated[int, "Number of chunks."]
    stored_chunks: Annotated[int, "Number of chunks whose KV is stored."]
    evicted_documents: Annotated[
        int, "Number of documents with evicted KV, which is recomputed when needed until it is rebuilt."
    ]
    last_used_at: datetime | None


def overview(
    tenant_id: str,
    database: Database,
    settings: Settings,
    kv_store: "KVStore",
    default_collection: CollectionRef,
    collections: CollectionKVPage = NO_COLLECTIONS,
    *,
    of_all: bool = True,
) -> KVOverview:
    """All of a tenant's KV, with that of these collections. Looks at every file: it may take a second. `of_all`: for
    the default tenant, with what each tenant has."""
    from ragkv.engine.launch import cache_gib_of  # noqa: PLC0415 - it imports PyTorch, which some commands do without

    with database.reading() as session:
        files, size, tokens, last_used = session.execute(kv_of(KVOwner(tenant_id))).one()
        sees_all = of_all and tenant_id == default_collection.tenant_id
        tenants = [TenantKV(*facts) for facts in session.execute(kv_by_tenant())] if sees_all else None
        limit = limit_now(session, settings)
        has_remote = settings.kv_remote is not None
        remote = KVAmount(*session.execute(kv_of(KVOwner(tenant_id), REMOTE)).one()[:3]) if has_remote else None
        sizes = entries_of(KVOwner(tenant_id)).add_columns(KVEntryRow.num_tokens)
        entries = session.execute(sizes).all() if files <= MAX_LOOKED_AT else None
    in_memory: int | None = None
    if entries is not None:  # count the files on this host's disk
        here = [(path, size, tokens) for key, size, tokens in entries if (path := kv_store.path(key)).exists()]
        files, size, tokens = len(here), sum(size for _, size, _ in here), sum(tokens for _, _, tokens in here)
        with suppress(OSError):
            in_memory = sum(resident_bytes(path) for path, _, _ in here)
    capacity = used = None
    if settings.engine_url is None and (gib := cache_gib_of(settings)):
        capacity, share = int(gib * GIB), engine_cache_use()
        used = None if share is None else int(capacity * share)
    tiers = KVTiers(
        DeviceTier(capacity, used),
        HostTier(in_memory),
        KVAmount(files, size, tokens),
        remote,
    )
    hit_rate, loads = tier_use(tenant_id, "24h", database)
    return KVOverview(tiers, collections.items, collections.next, tenants, limit or None, last_used, hit_rate, loads)


def kv_of_collections(tenant_id: str, database: Database) -> Iterator[CollectionKV]:
    """The KV of every collection of a tenant, by name, read a page at a time."""
    return all_pages(lambda cursor: kv_of_some_collections(tenant_id, MAX_PAGE, cursor, database))


def kv_of_some_collections(tenant_id: str, limit: int, cursor: str | None, database: Database) -> CollectionKVPage:
    """The KV of a page of a tenant's collections, by name. Raises Rejected for an invalid cursor."""
    position = position_by_name(cursor)
    with database.reading() as session:
        page = rows_behind(session, pins_of_collections(tenant_id), BY_NAME, limit, position)
        sums_of = {
            collection_id: sums
            for collection_id, *sums in session.execute(
                kv_by(DocumentRow.collection_id, [row[0] for row in page.items])
            )
        }
    items = [CollectionKV(*row, *sums_of.get(row[0], (0, 0, 0))) for row in page.items]
    return CollectionKVPage(items, page.next(lambda row: row[1]))


def held_kv(owner: KVOwner, database: Database) -> HeldKV:
    """The KV of a document or a collection that is there."""
    with database.reading() as session:
        files, size, tokens, last_used = session.execute(kv_of(owner)).one()
        chunks, stored = session.execute(chunks_by_kv(owner)).one()
        evicted = session.scalar(number_of(documents_without_kv(owner)))
        pinned = _row(session, owner).kv_pinned
    return HeldKV(
        pinned=pinned,
        files=files,
        bytes=size,
        tokens=tokens,
        chunks=chunks,
        stored_chunks=stored,
        evicted_documents=evicted or 0,
        last_used_at=last_used,
    )


def kv_of_documents(document_ids: Sequence[str], database: Database) -> dict[str, KVAmount]:
    """KV by document. Those without KV are left out."""
    rows = database.rows(kv_by(DocumentRow.id, document_ids))
    return {document_id: KVAmount(*sums) for document_id, *sums in rows}


def pin(owner: KVOwner, database: Database, settings: Settings, *, pinned: bool) -> HeldKV:
    """Keep the KV of a document or a collection from being evicted to make room, or no longer.

    Raises NotFound, Conflict for more than the tenant may pin.
    """
    with database.writing() as session:
        advisory_lock(session, f"pins of {owner.tenant_id}")  # of two at once, one sees what the other pinned
        _row(session, owner, lock=True).kv_pinned = pinned
        session.flush()
        if pinned:
            check_pins(session, owner.tenant_id, settings)
    return held_kv(owner, database)


def rebuild_document(tenant_id: str, document_id: str, database: Database, queue: Queue) -> DocumentView:
    """Queue a document so that its KV is made where it is missing; nothing to do for one that is being read.

    It goes on answering. Raises NotFound, Conflict for a document that failed.
    """
    with database.writing() as session:
        document = find_document(session, tenant_id, document_id)
        if document.status is Status.FAILED:
            raise Conflict("the document failed: retry it first; there is nothing to rebuild yet")
        is_queued = request_kv(session, tenant_id, document_id, REBUILD)
    if is_queued:
        enqueue(document_id, queue)
    return document_view(tenant_id, document_id, database)


def request_kv(session: Session, tenant_id: str, document_id: str, kind: str) -> bool:
    """Have a document's KV made where it is missing, as a job of a kind. Returns False for one that is gone, or that a
    worker is to read or is at."""
    if not session.connection().execute(precompute_again(document_id)).rowcount:
        return False
    session.add(new_job(tenant_id, document_id, kind))
    return True


def rebuild_missing(owner: KVOwner, database: Database, kv_store: "KVStore", queue: Queue) -> Queued:
    """Queue every document whose KV was evicted, or is recorded to be on this disk alone and is not there. Looks at
    every such file."""
    on_disk_alone = entries_of(owner).where(KVEntryRow.tier == DISK)
    lost = [key for key in database.scalars(on_disk_alone) if key not in kv_store]
    return queue_again(documents_without_kv(owner, lost), precompute_again, REBUILD, database, queue)


def request_lost_prefixes(
    database: Database, kv_store: "KVStore", kv_remote: "ObjectStore | None", keys_of: "Callable[[str], KeyMaker]"
) -> int:
    """Request the KV of one document of each tenant that has KV and whose prefix is neither on this disk nor in the
    object store: the worker that takes it computes the prefix too. Returns how many. Raises Unavailable.

    No entry and no chunk names a prefix, so its loss queues nothing: without this every stitched answer would recompute
    its tenant's prefix until some document of the tenant is ingested. With an object store, one that is not there may
    be on another host's disk until its tenant's first upload.
    """
    requested = 0
    for tenant_id in database.scalars(tenants_with_kv(None if kv_remote is None else REMOTE)):
        key = keys_of(tenant_id).prefix()
        if key in kv_store or (kv_remote is not None and kv_remote.has(key)):
            continue
        with database.writing() as session:
            document_id = session.scalar(document_with_kv(tenant_id))
            requested += document_id is not None and request_kv(session, tenant_id, document_id, KEEP)
    return requested


def _row(session: Session, owner: KVOwner, *, lock: bool = False) -> DocumentRow | CollectionRow:
    """The row of a document or a collection, for the transaction to change alone with `lock`. Raises NotFound."""
    is_document = owner.document_id is not None
    place = (DocumentRow, owner.document_id) if is_document else (CollectionRow, owner.collection_id)
    row: DocumentRow | CollectionRow | None = session.get(*place, with_for_update=BESIDE_NEW_ROWS if lock else None)
    if row is None:
        raise NotFound("it was deleted in the meantime")
    return row
