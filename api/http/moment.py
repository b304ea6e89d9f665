"""Points in time in query parameters."""

from datetime import UTC, datetime

from ragkv.errors import Rejected


def read_moment(name: str, text: str | None) -> datetime | None:
    """The moment that the parameter `name` gives in ISO 8601, in UTC if it names no zone. Raises Rejected."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Rejected(f"{name} is not a time in ISO 8601, such as 2026-01-31 or 2026-01-31T09:30:00Z") from None
