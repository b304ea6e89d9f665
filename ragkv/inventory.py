"""What there is at this moment, of all tenants together: for whoever looks after the whole service."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ragkv.db.documents import count_by_status
from ragkv.db.jobs import jobs_by_status
from ragkv.db.kv_entries import kv_by_tier
from ragkv.errors import Unavailable

if TYPE_CHECKING:
    from ragkv.parts import Parts

log = logging.getLogger(__name__)

T = TypeVar("T")


class Stored(msgspec.Struct, frozen=True):
    """Rows of the database, counted."""

    documents: dict[str, int] = {}
    jobs: dict[str, int] = {}
    kv_files: dict[str, int] = {}
    kv_bytes: dict[str, int] = {}


class Inventory(msgspec.Struct, frozen=True):
    """`up`: whether each part answers. What cannot be counted, because what counts it is away, is None."""

    up: dict[str, bool]
    stored: Stored | None
    queue_depth: int | None
    ingested: dict[str, float] | None


def take_inventory(parts: "Parts", up: dict[str, bool]) -> Inventory:
    return Inventory(
        up,
        stored=_unless_away(lambda: _stored(parts)),
        queue_depth=_unless_away(parts.queue.depth),
        ingested=_unless_away(parts.tally.read),
    )


def _stored(parts: "Parts") -> Stored:
    with parts.database.reading() as session:
        tiers = session.execute(kv_by_tier()).all()
        return Stored(
            documents={status.value: count for status, count, *_ in session.execute(count_by_status())},
            jobs={status.value: count for status, count in session.execute(jobs_by_status())},
            kv_files={tier: files for tier, files, _ in tiers},
            kv_bytes={tier: num_bytes for tier, _, num_bytes in tiers},
        )


def _unless_away(count: Callable[[], T]) -> T | None:
    try:
        return count()
    except Unavailable as error:
        log.warning("cannot be counted: %s", error)
        return None
