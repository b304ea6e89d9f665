"""Checks of KV on disk and in the object store against its entries, its checksums and the chunks that use it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ragkv.errors import Corrupt, Unsupported
from ragkv.files_io import remove_files
from ragkv.ids import batched
from ragkv.service.base.database import Database
from ragkv.service.base.kv_disk import DISK, REMOTE, moved, sizes_of_remote
from ragkv.service.base.tables import DocumentRow
from ragkv.service.checks.check import ConsistencyCheck
from ragkv.service.checks.consistency_statements import ready_without_kv
from ragkv.service.checks.leftovers import (
    missing_kv,
    missing_objects,
    unnamed,
    unnamed_kv,
    unnamed_objects,
    unrecorded_copies,
)
from ragkv.service.documents.job_statements import REBUILD
from ragkv.service.documents.removal import delete_forgotten, forget_unused
from ragkv.service.kv_admin.entry_statements import keys_with_entries, orphans, ready_documents_using
from ragkv.service.kv_admin.eviction import evict_entries
from ragkv.service.kv_admin.usage import request_kv

if TYPE_CHECKING:
    from ragkv.kv.layout import Layout
    from ragkv.kv.store import KVStore


def entries_without_file(database: Database, kv_store: "KVStore") -> Iterable[str]:
    """Keys whose entry is still there after their file was looked for."""
    keys = [key for key, _ in missing_kv(database, kv_store)]
    return [key for (key,) in database.rows_among(keys_with_entries, keys)]


def damaged_files(keys: Iterable[str], kv_store: "KVStore", layout: "Layout") -> Iterator[str]:
    """Keys among these whose file cannot be what its name says. Reads every file, and takes none away."""
    for key in keys:
        try:
            kv_store.check(key, layout)
        except (Corrupt, Unsupported):
            yield key
        except OSError:  # gone, or cannot be opened now
            continue


def _drop_or_make_again(keys: Sequence[str], database: Database, kv_store: "KVStore") -> None:
    """Remove the files of KV that has a copy in the object store; have a worker compute the rest."""
    copied = sizes_of_remote(database, keys)
    kv_store.drop(copied)
    _make_again([key for key in keys if key not in copied], database, kv_store)


def _make_again(keys: Sequence[str], database: Database, kv_store: "KVStore") -> None:
    """Forget the KV, remove its files, and give the documents that were ready with it back to the workers."""
    users = {user for (user,) in database.rows_among(ready_documents_using, keys)}
    evict_entries([(key, 0) for key in keys], database, kv_store)
    _rebuild(sorted(users), database)


def _rebuild(document_ids: Sequence[str], database: Database) -> None:
    """The sweep queues them: this works while the queue is away."""
    with database.writing() as session:
        for document_id in document_ids:
            document = session.get(DocumentRow, document_id)
            if document is not None:
                request_kv(session, document.tenant_id, document_id, REBUILD)


def _move(keys: Sequence[str], tier: str, database: Database) -> None:
    for batch in batched(keys):
        database.execute(moved(batch, tier))


KV_CHECKS = (
    ConsistencyCheck(
        "kv_without_file", "records of KV that is neither on disk nor in the object store", "KV recomputed by a worker",
        lambda grace, parts: entries_without_file(parts.database, parts.kv_store),
        lambda keys, grace, parts: _make_again([key for key in keys if key not in parts.kv_store], parts.database, parts.kv_store),
    ),
    ConsistencyCheck(
        "kv_without_object", "records of KV in the object store that does not exist there", "uploaded again by a worker that has the file",
        lambda grace, parts: missing_objects(parts.database, parts.kv_remote),
        # Workers upload what lies on a disk alone.
        lambda keys, grace, parts: _move(keys, DISK, parts.database),
    ),
    ConsistencyCheck(
        "unrecorded_copies", "records of KV as not uploaded that is in the object store and not on this disk", "recorded as uploaded",
        lambda grace, parts: unrecorded_copies(parts.database, parts.kv_store, parts.kv_remote),
        lambda keys, grace, parts: _move(keys, REMOTE, parts.database),
    ),
    ConsistencyCheck(
        "ready_without_kv", "ready documents with chunks that have no KV", "KV recomputed by a worker",
        lambda grace, parts: parts.database.scalars(ready_without_kv()), lambda names, grace, parts: _rebuild(names, parts.database),
    ),
    ConsistencyCheck(
        "unused_kv", "KV that no chunk uses", "removed",
        lambda grace, parts: parts.database.scalars(orphans(grace.kv_before)),
        lambda keys, grace, parts: delete_forgotten(forget_unused(keys, parts.database), parts.database, parts.kv_store),
    ),
    ConsistencyCheck(
        "unnamed_kv", "KV files that nothing refers to", "removed",
        lambda grace, parts: unnamed_kv(grace.kv_before, parts.database, parts.files, parts.kv_store, parts.prefixes),
        lambda keys, grace, parts: parts.kv_store.delete(unnamed(keys, parts.database, parts.prefixes)),
    ),
    ConsistencyCheck(
        "unnamed_objects", "KV in the object store without a record", "removed",
        lambda grace, parts: unnamed_objects(grace.kv_before, parts.database, parts.kv_remote, parts.prefixes),
        lambda keys, grace, parts: None if parts.kv_remote is None else parts.kv_remote.delete(keys),
    ),
    ConsistencyCheck(
        "partial_kv", "KV files that were never finished", "removed",
        lambda grace, parts: [path.name for path in parts.kv_store.partial(grace.kv_before)],
        lambda names, grace, parts: remove_files(parts.kv_store.partial(grace.kv_before)),
    ),
)  # fmt: skip
DAMAGED_KV = ConsistencyCheck(
    "damaged_kv",
    "KV files that are damaged or of another model",
    "removed if there is a copy, KV recomputed by a worker if not",
    lambda grace, parts: damaged_files(parts.kv_store.keys(), parts.kv_store, parts.layout),
    # Hours may have passed: who read a damaged file removed it, and a worker made it anew.
    lambda keys, grace, parts: _drop_or_make_again(
        list(damaged_files(keys, parts.kv_store, parts.layout)), parts.database, parts.kv_store
    ),
)
"""Apart, because it reads all KV there is."""
