"""Finds inconsistencies: files without rows, rows without files, KV, points.

A crash between two steps leaves it, or a restored backup. Every function here only looks, and may be called at any time
beside a running service. What was written after `before` may belong to work that is under way and is never named; what
is named then can be removed. Removal: `cleaning`.

All raise Unavailable when the part they look at is away, and OSError for a folder that cannot be read.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ragkv.ids import batched
from ragkv.retrieve.index import Held
from ragkv.service.base.database import Database
from ragkv.service.base.file_store import FileStore, StoredFile
from ragkv.service.base.kv_disk import DISK, REMOTE, keys_of_tier, sizes_of_remote
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import tenant_ids
from ragkv.service.documents.statements import ids_among, named_files, searchable_documents
from ragkv.service.kv_admin.entry_statements import all_entries, keys_in_use, keys_with_entries

if TYPE_CHECKING:
    from sqlalchemy import Select

    from ragkv.kv.remote import ObjectStore
    from ragkv.kv.store import KVStore
    from ragkv.retrieve.qdrant import QdrantIndex

log = logging.getLogger(__name__)

_Naming = Callable[[Sequence[str]], "Select[Any]"]
"""A statement of those among some keys that are named."""


def strangers(database: Database, files: FileStore) -> set[str]:
    """Ids of tenants that have uploaded files and that the database does not know. No tenant is ever deleted: with a
    new database, or another service's, the folder must stay as it is until the right one is back."""
    return files.tenants() - set(database.scalars(tenant_ids()))


def unnamed_files(before: datetime, database: Database, files: FileStore) -> list[StoredFile]:
    """Uploaded files that no document and no file of their tenant names, save those of `strangers`."""
    unknown = strangers(database, files)
    if unknown:
        log.warning(
            "the data folder has uploaded files of %d tenants that the database does not know: is RAGKV_DATABASE_URL "
            "right? They stay, and so does KV without a record; remove %s once they are not needed",
            len(unknown),
            ", ".join(str(files.folder / tenant_id) for tenant_id in sorted(unknown)[:3]),
        )
    stored = [file for file in files.stored(before) if file.tenant_id not in unknown]
    named = {StoredFile(*row) for row in database.rows_among(named_files, [file.sha256 for file in stored])}
    return [file for file in stored if file not in named]


def missing_files(database: Database, files: FileStore) -> list[StoredFile]:
    """Uploaded files that a document or a file names and that are not there:
    they cannot be downloaded or read again. Raises Unavailable where the whole folder is not there."""
    named = [StoredFile(*row) for row in database.rows(named_files())]
    if named:
        files.check_there()
    return [file for file in named if not files.path(*file).is_file()]


def unnamed_kv(
    before: datetime, database: Database, files: FileStore, kv_store: "KVStore", prefixes: Callable[[], set[str]]
) -> list[str]:
    """Keys of KV files that neither an entry nor a chunk names. The present prefixes have none, and are left out. None
    beside uploaded files of `strangers`, whose KV they may be."""
    return [] if strangers(database, files) else unnamed(kv_store.older_than(before), database, prefixes)


def unnamed_objects(
    before: datetime, database: Database, kv_remote: "ObjectStore | None", prefixes: Callable[[], set[str]]
) -> list[str]:
    """Keys of objects without an entry, if there is an object store: they are never loaded, whether or not a chunk
    names them. The present prefixes have none, and are left out."""
    if kv_remote is None:
        return []
    keys = (copy.key for copy in kv_remote.objects() if copy.modified < before)
    return _named_by_none(keys, (keys_with_entries,), database, prefixes)


def unnamed(keys: Iterable[str], database: Database, prefixes: Callable[[], set[str]]) -> list[str]:
    """The keys among these that nothing names now."""
    return _named_by_none(keys, (keys_with_entries, keys_in_use), database, prefixes)


def _named_by_none(
    keys: Iterable[str], statements: Sequence[_Naming], database: Database, prefixes: Callable[[], set[str]]
) -> list[str]:
    prefix_keys = prefixes()
    candidates = [key for key in keys if key not in prefix_keys]
    with database.reading() as session:
        named = {key for batch in batched(candidates) for names in statements for key in session.scalars(names(batch))}
    return [key for key in candidates if key not in named]


def missing_kv(database: Database, kv_store: "KVStore") -> list[tuple[str, int]]:
    """(key, bytes) of KV entries with neither a file nor an object: their chunks are recomputed with each question.

    With an object store, what was not uploaded and is not on this disk may be on another host's: it is not missing. Nor
    is what was uploaded to one that has no object at all: more likely it is not mounted (`missing_objects` names it).
    """
    entries = database.rows(all_entries())
    absent = {key: int(size) for key, size in entries if key not in kv_store}
    if kv_store.remote is None or not absent:
        return list(absent.items())
    uploaded = sizes_of_remote(database, list(absent))
    copied = {copy.key for copy in kv_store.remote.objects()}
    return [(key, absent[key]) for key in uploaded if key not in copied] if copied else []


def missing_objects(database: Database, kv_remote: "ObjectStore | None") -> list[str]:
    """Keys that the object store should have and does not."""
    if kv_remote is None:
        return []
    expected = database.scalars(keys_of_tier(REMOTE))
    copied = {copy.key for copy in kv_remote.objects()} if expected else set()
    return [key for key in expected if key not in copied]


def unrecorded_copies(database: Database, kv_store: "KVStore", kv_remote: "ObjectStore | None") -> list[str]:
    """Keys of KV that is not recorded to be in the object store, is there all the same, and is not on this disk: the
    object store said for a while that it had no such object."""
    if kv_remote is None:
        return []
    absent = [key for key in database.scalars(keys_of_tier(DISK)) if key not in kv_store]
    copied = {copy.key for copy in kv_remote.objects()} if absent else set()
    return [key for key in absent if key in copied]


def stray_points(database: Database, server_index: "QdrantIndex | None") -> list[str]:
    """Ids of documents that the index server has points of and the database knows nothing of, save those of tenants
    that it does not know either: they are of another database, as in `strangers`.

    None without an index server: the index in memory mirrors the database.
    """
    if server_index is None:
        return []
    held = server_index.held()
    with database.reading() as session:
        tenants = set(session.scalars(tenant_ids()))
        document_ids = sorted({place.document_id for place in held if place.tenant_id in tenants})
        stored = {row_id for batch in batched(document_ids) for row_id in session.scalars(ids_among(batch))}
    return [document_id for document_id in document_ids if document_id not in stored]


def missing_points(database: Database, server_index: "QdrantIndex | None") -> list[Held]:
    """Documents that searches should find and that have fewer points than chunks, or more. None without a server."""
    if server_index is None:
        return []
    written = searchable_documents().where(DocumentRow.status != Status.INDEXING)  # others' points a worker will write
    expected = {Held(*place): chunks for *place, chunks in database.rows(written)}
    held = server_index.held()
    return [place for place, chunks in expected.items() if held.get(place, 0) != chunks]
