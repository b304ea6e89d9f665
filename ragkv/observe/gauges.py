"""Gauges for the whole service at one moment, over all tenants, as plain values."""

import msgspec


class RowCounts(msgspec.Struct, frozen=True):
    """Numbers of rows in the database, by status or tier."""

    documents: dict[str, int] = {}
    jobs: dict[str, int] = {}
    kv_files: dict[str, int] = {}
    kv_bytes: dict[str, int] = {}


class Workload(msgspec.Struct, frozen=True):
    """Workers that report, what waits for them, and room on the disk. None: not known.

    `silent_s` and `stalled_s`: the least of all workers' seconds since a report, and without progress.
    """

    workers: int | None = None
    silent_s: float | None = None
    stalled_s: float | None = None
    waiting_s: float | None = None
    free_bytes: int | None = None


class Gauges(msgspec.Struct, frozen=True):
    """Values of all gauges. `up`: whether each part answers. None: the part that counts it is unavailable."""

    up: dict[str, bool]
    stored: RowCounts | None
    queue_depth: int | None
    ingested: dict[str, float] | None
    workload: Workload = Workload()
