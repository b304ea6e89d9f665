"""Makes room for KV: evicts what the policy values least, from tenants that hold more than their share."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ragkv.batched import BATCH
from ragkv.clock import utc_now
from ragkv.db.database import advisory_lock
from ragkv.db.kv_entries import first_to_go, kv_bytes_by_tenant, kv_totals, pinned_bytes, used_in_the_future
from ragkv.db.tenants import count_tenants
from ragkv.disk import default_kv_limit
from ragkv.errors import Conflict
from ragkv.eviction import EvictionReason, known_policy
from ragkv.parts import Parts
from ragkv.settings import Settings
from ragkv.upkeep.eviction import NOTHING, Freed, forget
from ragkv.upkeep.shares import Excess, excesses, fair_share

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_EVICTION = "eviction of KV"
_CLOCKS_DIFFER = timedelta(minutes=5)


class NewKV(NamedTuple):
    """Bytes of KV that a document is about to keep. What it keeps already is not taken away for them."""

    tenant_id: str
    document_id: str
    num_bytes: int


def kv_limit(kept: int, settings: Settings) -> int:
    """The bytes that the KV of all tenants may take while it takes `kept`; 0 is no limit.

    With an object store that is the limit there: `ragkv.kv_disk` keeps the disk of each host within its own.
    """
    if settings.kv_remote is not None:
        return settings.max_remote_kv_bytes
    limit = settings.max_kv_bytes
    return default_kv_limit(settings.kv_dir, kept) if limit is None else limit


def limit_now(session: "Session", settings: Settings) -> int:
    """`kv_limit`, of the KV that is kept at this moment."""
    return kv_limit(session.execute(kv_totals()).one()[1], settings)


def check_pins(session: "Session", tenant_id: str, settings: Settings) -> None:
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


def make_room(parts: Parts) -> Freed:
    """Remove KV, pinned aside, until each tenant is within its quota and all are within the limit.

    Several processes may do it at once.
    """
    freed = NOTHING
    while (some := _evict_some(None, parts)) != NOTHING:
        freed += some
    return freed


def make_room_for(wanted: NewKV, parts: Parts) -> bool:
    """Remove other KV for what is wanted. False if it would be too much all the same."""
    while True:
        with parts.database.reading() as session:
            if not _excesses(session, wanted, parts.settings):
                return True
        if _evict_some(wanted, parts) == NOTHING:
            return False


def _excesses(session: "Session", wanted: NewKV | None, settings: Settings) -> list[Excess]:
    kept = dict(session.execute(kv_bytes_by_tenant()).all())
    limit = kv_limit(sum(kept.values()), settings)
    if wanted is not None:
        kept[wanted.tenant_id] = kept.get(wanted.tenant_id, 0) + wanted.num_bytes
    return excesses(kept, settings.max_tenant_kv_bytes, limit)


def _evict_some(wanted: NewKV | None, parts: Parts) -> Freed:
    with parts.database.writing() as session:
        advisory_lock(session, _EVICTION)
        spared = wanted.document_id if wanted is not None else None
        chosen: list[tuple[str, int]] = []
        reason: EvictionReason = "budget"
        for tenant_id, num_bytes, reason in _excesses(session, wanted, parts.settings):  # noqa: B007 - used below
            entries = _least_worth(session, tenant_id, spared, parts.settings)
            freed_before = accumulate((size for _, size in entries), initial=0)
            chosen = [
                (key, size) for (key, size), freed in zip(entries, freed_before, strict=False) if freed < num_bytes
            ]
            # Of the first tenant that has some to give up. Those behind the one that wants room keep less than it does
            # then, and two documents that took from each other in turns would never end.
            if chosen or (wanted is not None and tenant_id == wanted.tenant_id):
                break
        forget(session, [key for key, _ in chosen])
    parts.kv_store.delete(key for key, _ in chosen)
    freed = Freed(len(chosen), sum(size for _, size in chosen))
    parts.worker_counters.evicted(reason, freed.files, freed.bytes)
    return freed


def _least_worth(
    session: "Session", tenant_id: str, spared: str | None, settings: Settings
) -> Sequence[tuple[str, int]]:
    """(key, bytes) of a tenant's entries that go first, BATCH at most."""
    policy, half_life_s = known_policy(settings.eviction).name, settings.eviction_half_life_s
    session.execute(used_in_the_future(utc_now(), _CLOCKS_DIFFER, half_life_s))
    return session.execute(first_to_go(policy, half_life_s, tenant_id, BATCH, spared)).all()
