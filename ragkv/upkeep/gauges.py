"""Reads the gauges for the whole service, for `/metrics`."""

import logging
from collections.abc import Callable
from typing import TypeVar

from ragkv.db.database import Database
from ragkv.db.documents import count_by_status
from ragkv.db.jobs import count_all_jobs
from ragkv.db.kv_entries import kv_by_tier
from ragkv.errors import Unavailable
from ragkv.observe.gauges import Gauges, RowCounts, Workload
from ragkv.parts import Parts
from ragkv.upkeep.condition import free_bytes

log = logging.getLogger(__name__)

T = TypeVar("T")


def read_gauges(up: dict[str, bool], parts: Parts) -> Gauges:
    beats = _unless_away(parts.heartbeats.read)
    waiting = _unless_away(parts.backlog.read)
    return Gauges(
        up,
        stored=_unless_away(lambda: _stored(parts.database)),
        queue_depth=_unless_away(parts.queue.depth),
        ingested=_unless_away(parts.worker_counters.read),
        workload=Workload(
            workers=None if beats is None else sum(beat.is_alive for beat in beats),
            silent_s=min((beat.silent_s for beat in beats or ()), default=None),
            stalled_s=min((beat.stalled_s for beat in beats or () if beat.is_alive), default=None),
            waiting_s=None if waiting is None else waiting.oldest_s,
            free_bytes=free_bytes(parts),
        ),
    )


def _stored(database: Database) -> RowCounts:
    with database.reading() as session:
        tiers = session.execute(kv_by_tier()).all()
        return RowCounts(
            documents={status.value: count for status, count, *_ in session.execute(count_by_status())},
            jobs={status.value: count for status, count in session.execute(count_all_jobs())},
            kv_files={tier: files for tier, files, _ in tiers},
            kv_bytes={tier: num_bytes for tier, _, num_bytes in tiers},
        )


def _unless_away(count: Callable[[], T]) -> T | None:
    try:
        return count()
    except Unavailable as error:
        log.warning("cannot be counted: %s", error)
        return None
