"""The KV folder as this host's cache of the object store: bounded, least recently used first out.

Other hosts with folders of their own may share database and bucket. What lies here is known by the files alone, and so
is when it was last used: the time of a file. Only files with a copy in the object store go, and those of KV that has no
entry any more: another host evicted it.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from sqlalchemy import Select, Update, select, update

from ragkv.errors import OutOfSpace
from ragkv.files_io import check_room, default_kv_limit, written_before
from ragkv.ids import batched, utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.lists import one_of
from ragkv.service.base.tables import KVEntryRow
from ragkv.settings import Settings

if TYPE_CHECKING:
    from ragkv.kv.store import KVFile, KVStore

DISK, REMOTE = "disk", "remote"
"""Tiers of an entry: only on a disk, or in the object store too."""
LOW_WATER = 0.9
"""Share of the limit down to which files are removed, so that not every file has to make room for itself."""
LOOK_EVERY_S = 60.0
"""Other processes of the host write to the folder too."""
ENTRY_WITHIN = timedelta(hours=1)
"""Files get their entries soon after they were written: older ones without are of KV that was evicted or removed."""
LOOKING_SHARE = 0.01
"""Share of the time, at most, that goes into looking at large folders."""


class KVDisk:
    """One per process, for any number of threads."""

    def __init__(
        self, kv_store: "KVStore", database: Database, settings: Settings, prefixes: Callable[[], Collection[str]]
    ) -> None:
        """prefixes: keys that have no entry and stay."""
        self.dropped: Callable[[Sequence[str]], None] = lambda keys: None
        """Is told the keys whose files went."""
        self._store = kv_store
        self._database = database
        self._settings = settings
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._kept = self._reserved = 0
        self._look_at = self._full_until = 0.0

    def make_room(self, num_bytes: int) -> None:
        """Like `room`, for files that are written at once."""
        with self.room(num_bytes):
            pass

    @contextmanager
    def room(self, num_bytes: int) -> Iterator[None]:
        """Remove copies until there is room for `num_bytes` more, which are written in the block.

        Raises OutOfSpace, and Unavailable when the database is away.
        """
        with self._lock:
            self._reserve(num_bytes)
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= num_bytes
                self._kept += num_bytes

    def copied(self) -> None:
        """Files have got a copy: they may go now."""
        with self._lock:
            self._full_until = 0.0

    def has_room(self, num_bytes: int) -> bool:
        """Whether `num_bytes` more fit without removing a file."""
        with self._lock:
            if time.monotonic() >= self._look_at:
                self._look()
            limit = self._limit()
            return not limit or self._kept + self._reserved + num_bytes <= limit

    def _reserve(self, num_bytes: int) -> None:
        if time.monotonic() >= self._look_at:
            self._look()
        limit, needed = self._limit(), self._reserved + num_bytes
        if limit and needed > limit:
            raise OutOfSpace(
                f"{needed:,} bytes of KV are to be written at once, more than the {limit:,} that may be kept on this disk: "
                "raise RAGKV_MAX_KV_BYTES"
            )
        if limit and self._kept + needed > limit:
            if time.monotonic() >= self._full_until:
                self._remove(needed, limit)
            if self._kept + needed > limit:
                raise OutOfSpace(
                    f"KV takes {self._kept:,} of {limit:,} bytes on this disk, and not enough of it can be removed, "
                    "because it is in use or has no copy in the object store: check the object store "
                    "(RAGKV_KV_REMOTE), or raise RAGKV_MAX_KV_BYTES"
                )
        check_room(self._settings.kv_dir, self._settings.min_free_bytes)
        self._reserved += num_bytes

    def _limit(self) -> int:
        limit = self._settings.max_kv_bytes
        return default_kv_limit(self._settings.kv_dir, self._kept) if limit is None else limit

    def _look(self) -> "list[KVFile]":
        began = time.monotonic()
        files = list(self._store.files())
        self._kept = sum(file.num_bytes for file in files)
        ended = time.monotonic()
        self._look_at = ended + max(LOOK_EVERY_S, (ended - began) / LOOKING_SHARE)
        return files

    def _remove(self, needed: int, limit: int) -> None:
        """Drop the least recently used files that may go, until there is room for the bytes that are needed. Where too
        little may, as while the object store is away, the next try waits: every question wants room."""
        began = time.monotonic()
        files = self._look()
        excess = self._kept + needed - int(LOW_WATER * limit)
        prefixes = self._prefixes()
        for batch in batched(sorted(file for file in files if file.key not in prefixes)):
            if excess <= 0:
                break
            droppable = self._droppable(batch)
            bytes_before = accumulate((file.num_bytes for file in droppable), initial=0)
            dropped = [
                file for file, freed_before in zip(droppable, bytes_before, strict=False) if freed_before < excess
            ]
            self._store.drop(file.key for file in dropped)
            self.dropped([file.key for file in dropped])
            freed = sum(file.num_bytes for file in dropped)
            self._kept -= freed
            excess -= freed
        if self._kept + needed > limit:
            ended = time.monotonic()
            self._full_until = ended + min(max(1.0, (ended - began) / LOOKING_SHARE), LOOK_EVERY_S)

    def _droppable(self, files: "Sequence[KVFile]") -> "list[KVFile]":
        """Files that have a copy, and those that have no entry and had time to get one."""
        keys, young_since = [file.key for file in files], utc_now() - ENTRY_WITHIN
        tiers = dict(self._database.rows(tiers_of(keys)))
        return [
            file
            for file in files
            if (tier := tiers.get(file.key)) == REMOTE
            or (tier is None and written_before(self._store.path(file.key), young_since))
        ]


def sizes_of_remote(database: Database, keys: Sequence[str]) -> dict[str, int]:
    """Bytes of those among the keys that the object store has. Raises Unavailable."""
    remote = select(KVEntryRow.key, KVEntryRow.num_bytes).where(KVEntryRow.tier == REMOTE)
    return dict(database.rows_among(lambda batch: remote.where(one_of(KVEntryRow.key, batch)), keys))


def any_uploaded(database: Database) -> bool:
    """Whether some KV is recorded to be in the object store. Raises Unavailable."""
    return database.scalar(keys_of_tier(REMOTE).limit(1)) is not None


def lose_object(database: Database, key: str) -> None:
    """The object of a key is gone or damaged: a host that has the file uploads it again. Raises Unavailable."""
    database.execute(moved([key], DISK))


def tiers_of(keys: Sequence[str]) -> Select[str, str]:
    """(key, tier) of those among these keys that have an entry."""
    return select(KVEntryRow.key, KVEntryRow.tier).where(one_of(KVEntryRow.key, keys))


def keys_of_tier(tier: str) -> Select[str]:
    """Keys of all tenants."""
    return select(KVEntryRow.key).where(KVEntryRow.tier == tier)


def on_disk_alone(after: str, limit: int) -> Select[str, str, int]:
    """(key, tenant, bytes) of KV that was not uploaded: a page of it by key."""
    waiting = (KVEntryRow.tier == DISK, KVEntryRow.key > after)
    statement = select(KVEntryRow.key, KVEntryRow.tenant_id, KVEntryRow.num_bytes).where(*waiting)
    return statement.order_by(KVEntryRow.key).limit(limit)


def moved(keys: Sequence[str], tier: str) -> Update:
    """These keys are of another tier."""
    return update(KVEntryRow).where(one_of(KVEntryRow.key, keys)).values(tier=tier)
