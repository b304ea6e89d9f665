"""The KV store's page: sizes by tier, collection and document, and actions on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.format import size
from api.admin.shell import AdminRequest, page
from ragkv.kv.store import KVStore
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.documents.listing import DocumentFilter, list_documents
from ragkv.service.kv_admin.usage import (
    CollectionKV,
    KVAmount,
    KVOverview,
    kv_of_collections,
    kv_of_documents,
    overview,
)
from ragkv.settings import Settings

DOCUMENTS_A_PAGE = 25
COLLECTIONS_SHOWN = 50
NOTHING = KVAmount(0, 0, 0)


@dataclass(frozen=True, slots=True)
class TierBar:
    """One bar of a chart: `value` bytes (None if unknown), drawn as `width` percent."""

    kind: str
    name: str
    what: str
    value: int | None
    width: float


@get("/kv", sync_to_thread=True)
def kv_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    kv_store: NamedDependency[KVStore],
    default_collection: NamedDependency[CollectionRef],
    collection: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render bytes by tier and collection, and documents with their KV, of all collections or of one."""
    tenant_id = request.user.tenant_id
    seen = overview(tenant_id, database, settings, kv_store, default_collection)
    collections = list(kv_of_collections(tenant_id, database))
    collection_id = collection_ref(tenant_id, collection, database).collection_id if collection else None
    documents = list_documents(DocumentFilter(tenant_id, collection_id), DOCUMENTS_A_PAGE, cursor, database)
    kv = kv_of_documents([document.id for document in documents.items], database)
    return page(
        request,
        "kv.html",
        seen=seen,
        collections=collections_shown(collections, collection),
        num_collections=len(collections),
        tiers=tier_bars(seen),
        loads={tier.tier: tier for tier in seen.loads},
        largest=max((collection_kv.bytes for collection_kv in collections), default=0),
        documents=documents,
        kept={document.id: kv.get(document.id, NOTHING) for document in documents.items},
        chosen=collection,
        cursor=cursor,
    )


def collections_shown(collections: Sequence[CollectionKV], selected: str) -> list[CollectionKV]:
    """Collections with the most KV, and the one that is chosen by its id or name, in the order given."""
    most = {
        collection.id
        for collection in nlargest(COLLECTIONS_SHOWN, collections, key=lambda collection: collection.bytes)
    }
    return [
        collection
        for collection in collections
        if collection.id in most or selected in (collection.id, collection.name)
    ]


def tier_bars(seen: KVOverview) -> list[TierBar]:
    """Bars for device, page cache, disk and object store on one scale."""
    device, host, disk = seen.tiers.device.capacity_bytes, seen.tiers.host.bytes, seen.tiers.disk.bytes
    used = seen.tiers.device.used_bytes
    in_use = "" if used is None else f"; {size(used)} in use now"
    remote = seen.tiers.remote
    rows = [
        ("computed", "Device", f"size of the engine's own cache, shared by all tenants{in_use}", device),
        ("cached", "Page cache", "the part of the files that is in this machine's memory", host),
        ("stitched", "Disk", "all files" if remote is None else "files on this machine", disk),
    ]
    if remote is not None:
        rows.append(("remote", "Object store", "files with a copy there", remote.bytes))
    longest = max((value for *_, value in rows if value), default=1)
    return [TierBar(kind, name, what, value, (value or 0) / longest * 100) for kind, name, what, value in rows]
