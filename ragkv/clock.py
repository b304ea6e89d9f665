"""The time of day, as this process reads it."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)
