"""A process whose own clock is wrong, as the database's is not."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo

import pytest

import ragkv.ids


@contextmanager
def clock_ahead(by: timedelta) -> Iterator[None]:
    """As long as this lasts, the time of day that this process reads is ahead by so much, or behind."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + by

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragkv.ids, "datetime", Wrong)
        yield
