"""Cursors and ends of pages of long lists."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from ragkv.errors import NotFound, Rejected, Unavailable
from ragkv.page import Id, Moment, Page, PageRequest, from_cursor, to_cursor
from ragkv.page_ends import PageEnds
from ragkv.redis_client import connect
from ragkv.settings import Settings

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


def test_without_redis_a_list_is_read_and_an_item_that_is_gone_is_asked_for_again_later(tmp_path: Path):
    ends = PageEnds(connect(Settings(data_dir=tmp_path)))
    there = Page([ID], more=True)

    def gone(page: PageRequest) -> Page[str]:
        raise NotFound("no such item")

    assert ends.read("owner", PageRequest(), lambda page: there, lambda item: (datetime.now(UTC), item)) == there
    with pytest.raises(Unavailable):
        ends.read("owner", PageRequest(after=ID), gone, lambda item: (datetime.now(UTC), item))
