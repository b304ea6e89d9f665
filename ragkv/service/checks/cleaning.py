"""Removal of leftovers of crashes: uploads, points of deleted documents, attachments of deleted mails, KV that no chunk
uses. And points on a Qdrant server, made anew from the vectors that are also in the database."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from ragkv.files_io import remove_files
from ragkv.ids import utc_now
from ragkv.retrieve.index import Held
from ragkv.service.base.database import Database
from ragkv.service.base.file_store import FileStore, StoredFile
from ragkv.service.checks.leftovers import (
    missing_points,
    stray_points,
    unnamed,
    unnamed_files,
    unnamed_kv,
    unnamed_objects,
)
from ragkv.service.documents.attachment_statements import places_of_orphans
from ragkv.service.documents.documents import remove_orphans
from ragkv.service.documents.indexed import DatabaseSource
from ragkv.service.documents.removal import Removal, discard_unnamed, forget_answers, forget_unused
from ragkv.service.documents.statements import searchable_documents
from ragkv.service.kv_admin.entry_statements import orphans
from ragkv.service.kv_admin.eviction import Freed
from ragkv.service.parts import Parts

if TYPE_CHECKING:
    from ragkv.kv.store import KVStore
    from ragkv.retrieve.qdrant import QdrantIndex

UPLOAD_GRACE = timedelta(hours=1)
"""Time after its last write when an upload is taken as abandoned by its process."""
ENTRY_GRACE = timedelta(hours=1)
FILE_GRACE = timedelta(days=1)
"""A file gets its entry when its whole document is read: until then it must not be taken for an unused one."""


class Cleaned(msgspec.Struct, frozen=True):
    """Numbers of what was removed: unfinished uploads, files that no row named, points of deleted documents,
    attachments of deleted mails."""

    uploads: int
    files: int
    documents: int
    attachments: int

    def __bool__(self) -> bool:
        return bool(self.uploads or self.files or self.documents or self.attachments)


def clean(database: Database, removal: Removal, server_index: "QdrantIndex | None") -> Cleaned:
    """Remove what killed processes left. Several processes may do it at once, beside any uploads."""
    cutoff = utc_now() - UPLOAD_GRACE
    uploads = list(removal.files.unfinished(cutoff))
    remove_files(uploads)
    files = discard_files(unnamed_files(cutoff, removal.database, removal.files), removal)
    strays = stray_points(database, server_index)
    delete_points(strays, server_index)
    places = removal.database.rows(places_of_orphans())
    attachments = 0
    for tenant_id, collection_id in places:
        attachments += len(remove_orphans(tenant_id, collection_id, removal))
        forget_answers(tenant_id, collection_id, removal)
    return Cleaned(len(uploads), files, len(strays), attachments)


def discard_files(files: Iterable[StoredFile], removal: Removal) -> int:
    """Delete uploaded files that no row names now. Returns how many."""
    return sum(discard_unnamed(owner, [sha256], removal.database, removal.files) for owner, sha256 in files)


def delete_points(document_ids: Sequence[str], server_index: "QdrantIndex | None") -> None:
    """Delete points of documents from the index server, if there is one."""
    if document_ids and server_index is not None:
        server_index.delete_documents(document_ids)


def write_points(places: Iterable[Held], server_index: "QdrantIndex | None", source: DatabaseSource) -> int:
    """Write the points of these documents anew, none of those that are gone. Returns how many.

    Once more if other chunks were stored meanwhile: their own points may have been written before these.
    """
    num_points = 0
    for tenant_id, collection_id, document_id in places:
        assert server_index is not None, "points lie on a server"
        is_settled = False
        while not is_settled:
            version = source.indexed_documents(tenant_id, collection_id).get(document_id)
            points = source.points([document_id])
            server_index.replace(tenant_id, collection_id, [document_id], points)
            is_settled = source.indexed_documents(tenant_id, collection_id).get(document_id) == version
        num_points += len(points)
    return num_points


def restore_points(parts: Parts) -> int:
    """Write the points that the index server lacks: it was switched on later, or lost its data. Returns how many."""
    if parts.qdrant is None:
        return 0
    parts.qdrant.ensure(parts.question_encoder.dim)
    return write_points(missing_points(parts.database, parts.server_index), parts.server_index, parts.source)


def restore_lost_points(parts: Parts) -> int:
    """`restore_points` where the server has none at all: a look takes no time."""
    return 0 if parts.qdrant is None or parts.qdrant.has_points() else restore_points(parts)


def renew_points(database: Database, server_index: "QdrantIndex | None", source: DatabaseSource) -> int | None:
    """Write every point on the server anew, and remove strays. Returns how many were written; None without a server."""
    if server_index is None:
        return None
    held = server_index.held()  # first: a document that is indexed meanwhile is wanted
    expected = {Held(*place) for *place, _ in database.rows(searchable_documents())}
    for place in held:
        if place not in expected:
            server_index.delete_from_collection(place.tenant_id, place.collection_id, [place.document_id])
    return write_points(expected, server_index, source)


def collect_garbage(parts: Parts) -> Freed:
    """Remove KV that no chunk uses, and files and objects that nothing names: left by changed instructions and killed
    processes."""
    unused = parts.database.scalars(orphans(utc_now() - ENTRY_GRACE))
    candidates = {
        *forget_unused(unused, parts.database),
        *unnamed_kv(utc_now() - FILE_GRACE, parts.database, parts.files, parts.kv_store, parts.prefixes),
    }
    unnamed_keys = unnamed(
        candidates, parts.database, parts.prefixes
    )  # a document may have come back to some while the folder was read
    freed = Freed(len(unnamed_keys), sum(parts.kv_store.bytes_of(key) for key in unnamed_keys))
    parts.kv_store.delete(unnamed_keys)
    parts.worker_counters.evicted("unused", freed.files, freed.bytes)
    remove_files(parts.kv_store.partial(utc_now() - FILE_GRACE))
    if parts.kv_remote is not None:  # files of these keys may have been made anew
        parts.kv_remote.delete(unnamed_objects(utc_now() - FILE_GRACE, parts.database, parts.kv_remote, parts.prefixes))
    return freed


def remove_unnamed_files(
    database: Database, files: FileStore, kv_store: "KVStore", prefixes: Callable[[], set[str]]
) -> Freed:
    """Remove the files of this host that nothing names: KV that was removed while another host had a copy, and files
    that were never finished. Objects stay."""
    cutoff = utc_now() - FILE_GRACE
    keys = unnamed_kv(cutoff, database, files, kv_store, prefixes)
    freed = Freed(len(keys), sum(kv_store.bytes_of(key) for key in keys))
    kv_store.drop(keys)
    remove_files(kv_store.partial(cutoff))
    return freed
