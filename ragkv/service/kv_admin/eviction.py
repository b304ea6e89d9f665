"""Eviction of KV: by hand, and to make room, of what the policy values least, from tenants that hold more than their
share.

Evicted KV is recomputed when a question needs it. Its documents stay searchable, and are ready again after a rebuild.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from ragkv.errors import Conflict
from ragkv.files_io import default_kv_limit
from ragkv.ids import BATCH, batched, utc_now
from ragkv.kv.eviction import EvictionReason, known_policy
from ragkv.service.base.database import Database, Session, advisory_lock, num_changed
from ragkv.service.base.tenants import count_tenants
from ragkv.service.documents.removal import delete_forgotten
from ragkv.service.kv_admin.entry_statements import (
    KVOwner,
    entries_only_of,
    first_to_go,
    forget_entries,
    keys_with_entries,
    kv_bytes_by_tenant,
    kv_totals,
    locked_entries,
    lose_readiness,
    pinned_bytes,
    remember_uses,
    used_in_the_future,
)
from ragkv.service.observe.worker_counters import WorkerCounters
from ragkv.settings import Settings

if TYPE_CHECKING:
    from ragkv.kv.store import KVStore

_EVICTION = "eviction of KV"
_CLOCKS_DIFFER = timedelta(minutes=5)


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
    entries = [(key, int(size)) for key, size in database.rows(entries_only_of(owner))]
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
        delete_forgotten(keys, database, kv_store)
        freed += Freed(len(batch), sum(size for _, size in batch))
    return freed


def forget(session: Session, keys: Sequence[str]) -> None:
    """Forget the entries of these keys; documents that use them are ready no longer.
    Their files go after the commit."""
    session.execute(locked_entries(keys_with_entries(keys)))
    num_changed(session, remember_uses(keys))
    num_changed(session, lose_readiness(keys))
    session.execute(forget_entries(keys))


class NewKV(NamedTuple):
    """Bytes of KV that a document is about to keep. What it keeps already is not taken away for them."""

    tenant_id: str
    document_id: str
    num_bytes: int


class Excess(NamedTuple):
    """Bytes that a tenant is to give up, beyond its quota or for the budget of all."""

    tenant_id: str
    num_bytes: int
    reason: Literal["quota", "budget"]


def kv_limit(stored: int, settings: Settings) -> int:
    """The bytes that the KV of all tenants may take while it takes `stored`; 0 is no limit.

    With an object store that is the limit there: `base.kv_disk` keeps the disk of each host within its own.
    """
    if settings.kv_remote is not None:
        return settings.max_remote_kv_bytes
    limit = settings.max_kv_bytes
    return default_kv_limit(settings.kv_dir, stored) if limit is None else limit


def limit_now(session: Session, settings: Settings) -> int:
    """`kv_limit`, of the KV that is kept at this moment."""
    return kv_limit(session.execute(kv_totals()).one()[1], settings)


def check_pins(session: Session, tenant_id: str, settings: Settings) -> None:
    """Check a tenant's pins. Raises Conflict if a tenant pins more KV than its quota, or than its fair share of what
    all may keep."""
    tenants = session.scalar(count_tenants()) or 1
    allowed = fair_share(tenants, settings.max_tenant_kv_bytes, limit_now(session, settings))
    pinned = session.scalar(pinned_bytes(tenant_id)) or 0
    if allowed and pinned > allowed:
        raise Conflict(
            f"with this, {pinned:,} bytes of KV would be pinned, but the tenant may pin only {allowed:,}: unpin something else, or "
            "raise RAGKV_MAX_TENANT_KV_BYTES or RAGKV_MAX_KV_BYTES"
        )


def make_room(database: Database, settings: Settings, kv_store: "KVStore", worker_counters: WorkerCounters) -> Freed:
    """Remove KV, pinned aside, until each tenant is within its quota and all are within the limit.

    Several processes may do it at once.
    """
    freed = NOTHING
    while (evicted := _evict_some(None, database, settings, kv_store, worker_counters)) != NOTHING:
        freed += evicted
    return freed


def make_room_for(
    new_kv: NewKV, database: Database, settings: Settings, kv_store: "KVStore", worker_counters: WorkerCounters
) -> bool:
    """Remove other KV for new KV. False if it would be too much all the same."""
    while True:
        with database.reading() as session:
            if not _excesses(session, new_kv, settings):
                return True
        if _evict_some(new_kv, database, settings, kv_store, worker_counters) == NOTHING:
            return False


def _excesses(session: Session, new_kv: NewKV | None, settings: Settings) -> list[Excess]:
    bytes_of = dict(session.execute(kv_bytes_by_tenant()).all())
    limit = kv_limit(sum(bytes_of.values()), settings)
    if new_kv is not None:
        bytes_of[new_kv.tenant_id] = bytes_of.get(new_kv.tenant_id, 0) + new_kv.num_bytes
    return excesses(bytes_of, settings.max_tenant_kv_bytes, limit)


def _evict_some(
    new_kv: NewKV | None, database: Database, settings: Settings, kv_store: "KVStore", worker_counters: WorkerCounters
) -> Freed:
    with database.writing() as session:
        advisory_lock(session, _EVICTION)
        policy, half_life_s = known_policy(settings.eviction).name, settings.eviction_half_life_s
        spared = new_kv.document_id if new_kv is not None else None
        evicted: list[tuple[str, int]] = []
        reason: EvictionReason = "budget"
        for tenant_id, num_bytes, reason in _excesses(session, new_kv, settings):  # noqa: B007 - used below
            session.execute(used_in_the_future(utc_now(), _CLOCKS_DIFFER, half_life_s))
            entries = session.execute(first_to_go(policy, half_life_s, tenant_id, BATCH, spared)).all()
            freed_before = accumulate((size for _, size in entries), initial=0)
            evicted = [
                (key, size) for (key, size), freed in zip(entries, freed_before, strict=False) if freed < num_bytes
            ]
            # Of the first tenant that has some to give up. Those behind the one that wants room keep less than it does
            # then, and two documents that took from each other in turns would never end.
            if evicted or (new_kv is not None and tenant_id == new_kv.tenant_id):
                break
        keys = [key for key, _ in evicted]
        forget(session, keys)
    delete_forgotten(keys, database, kv_store)
    freed = Freed(len(evicted), sum(size for _, size in evicted))
    worker_counters.evicted(reason, freed.files, freed.bytes)
    return freed


def excesses(bytes_of: Mapping[str, int], quota: int, limit: int) -> list[Excess]:
    """Tenants that keep too much, the first to be asked first; none if all is within bounds. 0 is no bound.

    A tenant beyond its own quota gives up the rest. Beyond the limit of all together the tenant that keeps most gives
    up, at most until it keeps no more than the next: a tenant within its fair share is asked only after the larger
    ones.
    """
    beyond = [
        Excess(tenant_id, size - quota, "quota") for tenant_id, size in bytes_of.items() if quota and size > quota
    ]
    too_much = sum(bytes_of.values()) - limit
    if beyond or not limit or too_much <= 0:
        return beyond
    by_size = sorted(bytes_of, key=lambda tenant_id: (-bytes_of[tenant_id], tenant_id))
    following = [bytes_of[tenant_id] for tenant_id in by_size[1:]] + [0]
    steps = zip(by_size, following, strict=True)
    return [
        Excess(tenant_id, min(too_much, max(bytes_of[tenant_id] - smaller, 1)), "budget")
        for tenant_id, smaller in steps
        if bytes_of[tenant_id]
    ]


def fair_share(tenants: int, quota: int, limit: int) -> int:
    """Bytes that each of `tenants` tenants may pin; 0 is no bound."""
    share = limit // max(tenants, 1)
    return min(bound for bound in (quota, share) if bound) if quota or share else 0
