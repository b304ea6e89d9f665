"""What there was at one moment, of all tenants together, as plain values."""

import msgspec


class Stored(msgspec.Struct, frozen=True):
    """Rows of the database, counted."""

    documents: dict[str, int] = {}
    jobs: dict[str, int] = {}
    kv_files: dict[str, int] = {}
    kv_bytes: dict[str, int] = {}


class Workload(msgspec.Struct, frozen=True):
    """Workers that report, what waits for them, and room on the disk. None: it cannot be known.

    `silent_s` and `stalled_s`: the least of all workers' seconds since a report, and without progress.
    """

    workers: int | None = None
    silent_s: float | None = None
    stalled_s: float | None = None
    waiting_s: float | None = None
    free_bytes: int | None = None


class Inventory(msgspec.Struct, frozen=True):
    """`up`: whether each part answers. What cannot be counted, because what counts it is away, is None."""

    up: dict[str, bool]
    stored: Stored | None
    queue_depth: int | None
    ingested: dict[str, float] | None
    workload: Workload = Workload()
