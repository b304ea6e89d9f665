"""Cursors of pages of long lists."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ragkv.errors import Rejected
from ragkv.service.base.page import Id, Moment, from_cursor, to_cursor

ID = "0" * 32
PLACE = tuple[Moment, Id]
EAST = timezone(timedelta(hours=23, minutes=59))


def test_a_moment_of_another_zone_is_given_in_utc():
    """SQLite would drop the zone."""
    moment, _ = from_cursor(to_cursor((datetime(2026, 1, 1, 23, 59, tzinfo=EAST), ID)), PLACE) or (None, None)

    assert moment is not None
    assert (moment, moment.tzinfo) == (datetime(2026, 1, 1, tzinfo=UTC), UTC)


@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 1, tzinfo=EAST), datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))]
)
def test_a_moment_that_utc_has_no_year_for_is_refused(moment: datetime):
    """PostgreSQL's driver would raise another error."""
    with pytest.raises(Rejected, match="invalid cursor"):
        from_cursor(to_cursor((moment, ID)), PLACE)
