"""Lines of streams, however the stream is cut into pieces."""

from collections.abc import AsyncIterator

import pytest

from ragkv import files_io
from ragkv.errors import Unavailable
from ragkv.files_io import lines_of

pytestmark = pytest.mark.anyio

WHOLE = 'data: "ä\u2028b"\r\n\r\ndata: \u2029\x85\x0b\x0c\n: rest'


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_only_line_feeds_end_lines(size: int):
    found = [line async for line in lines_of(in_pieces(WHOLE.encode(), size))]

    assert found == ['data: "ä\u2028b"', "", "data: \u2029\x85\x0b\x0c", ": rest"]


async def test_a_line_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files_io, "LONGEST_LINE", 10)
    with pytest.raises(Unavailable, match="more than 10 bytes"):
        assert not [line async for line in lines_of(in_pieces(b"x" * 100, 4))]
