"""Eviction of KV, manual or to make room (`ragkv.service.kv_admin.room`), and removal of KV that no chunk uses.

Evicted KV is recomputed when a question needs it. Its documents stay searchable, and are ready again after a rebuild.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from ragkv.files_io import remove_files
from ragkv.ids import batched, utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.tenancy import KVOwner
from ragkv.service.checks.leftovers import partial_kv, unnamed, unnamed_kv, unnamed_objects, unused_kv
from ragkv.service.documents.lease import forget_unused
from ragkv.service.kv_admin.entry_statements import (
    entries_only_of,
    forget_entries,
    keys_with_entries,
    locked_entries,
    lose_readiness,
    remember_uses,
)
from ragkv.service.observe.worker_counters import WorkerCounters

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from ragkv.kv.store import KVStore
    from ragkv.service.parts import Parts

log = logging.getLogger(__name__)

ENTRY_GRACE = timedelta(hours=1)
FILE_GRACE = timedelta(days=1)
"""A file gets its entry when its whole document is read: until then it must not be taken for an unused one."""


class Freed(msgspec.Struct, frozen=True):
    """The KV that was evicted."""

    files: Annotated[int, "Number of deleted KV files."]
    bytes: Annotated[int, "Size of the deleted KV files in bytes."]

    def __add__(self, other: "Freed") -> "Freed":
        return Freed(self.files + other.files, self.bytes + other.bytes)


NOTHING = Freed(0, 0)


def evict(
    owner: KVOwner,
    database: Database,
    kv_store: "KVStore",
    worker_counters: WorkerCounters,
    when_changed: Callable[[], None] = lambda: None,
) -> Freed:
    """Remove the KV that is an owner's alone, pinned or not. KV that others use too stays.

    `when_changed` is called after each commit, before files go.
    """
    with database.reading() as session:
        entries = [(key, int(size)) for key, size in session.execute(entries_only_of(owner))]
    freed = evict_entries(entries, database, kv_store, when_changed)
    worker_counters.evicted("by_hand", freed.files, freed.bytes)
    return freed


def evict_entries(
    entries: Iterable[tuple[str, int]],
    database: Database,
    kv_store: "KVStore",
    when_changed: Callable[[], None] = lambda: None,
) -> Freed:
    """Remove KV by (key, bytes). `when_changed` is called after each commit, before files go."""
    freed = NOTHING
    for batch in batched(list(entries)):
        keys = [key for key, _ in batch]
        with database.writing() as session:
            forget(session, keys)
        when_changed()
        kv_store.delete(keys)
        freed += Freed(len(batch), sum(size for _, size in batch))
    return freed


def collect_garbage(parts: "Parts") -> Freed:
    """Remove KV that no chunk uses, and files and objects that nothing names: left by replaced documents and killed
    processes."""
    unused = unused_kv(utc_now() - ENTRY_GRACE, parts.database)
    candidates = {
        *forget_unused(unused, parts.database),
        *unnamed_kv(utc_now() - FILE_GRACE, parts.database, parts.kv_store, parts.prefixes),
    }
    unnamed_keys = unnamed(
        candidates, parts.database, parts.prefixes
    )  # a document may have come back to some while the folder was read
    freed = Freed(len(unnamed_keys), sum(parts.kv_store.bytes_of(key) for key in unnamed_keys))
    parts.kv_store.delete(unnamed_keys)
    parts.worker_counters.evicted("unused", freed.files, freed.bytes)
    remove_files(partial_kv(utc_now() - FILE_GRACE, parts.kv_store))
    if parts.kv_remote is not None:  # files of these keys may have been made anew
        parts.kv_remote.delete(unnamed_objects(utc_now() - FILE_GRACE, parts.database, parts.kv_remote, parts.prefixes))
    return freed


def remove_unnamed_files(database: Database, kv_store: "KVStore", prefixes: Callable[[], set[str]]) -> Freed:
    """Remove the files of this host that nothing names: KV that was removed while another host had a copy, and files
    that were never finished. Objects stay."""
    cutoff = utc_now() - FILE_GRACE
    keys = unnamed_kv(cutoff, database, kv_store, prefixes)
    freed = Freed(len(keys), sum(kv_store.bytes_of(key) for key in keys))
    kv_store.drop(keys)
    remove_files(partial_kv(cutoff, kv_store))
    return freed


def forget(session: "Session", keys: Sequence[str]) -> None:
    """Forget the entries of these keys; documents that use them are ready no longer.
    Their files go after the commit."""
    session.execute(locked_entries(keys_with_entries(keys)))
    session.execute(remember_uses(keys), execution_options={"synchronize_session": False})
    session.execute(lose_readiness(keys), execution_options={"synchronize_session": False})
    session.execute(forget_entries(keys))
