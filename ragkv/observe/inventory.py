"""What there was at one moment, of all tenants together, as plain values."""

import msgspec


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
