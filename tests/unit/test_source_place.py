"""The place in a source that a citation points at."""

import pytest

from api.admin.documents import TextRange, mark
from ragkv.service.documents.listing import ChunkKV, ChunkView

CHUNK = ChunkView(
    id="x:0",
    ordinal=0,
    title="",
    text="abcdefghij",
    page=None,
    page_label=None,
    start=100,
    end=110,
    tokens=3,
    kv=ChunkKV("pending", 0),
)


def test_what_is_no_place_is_none(subtests: pytest.Subtests):
    for text in [
        "",
        "5",
        "-",
        "5-",
        "-5",
        "5-5",
        "7-5",
        "a-b",
        "1-2-3",
        " 1-2",
        "1-2\n",
        "1-" + "9" * 20,
        "1-2-",
        "1-2-ABCDEF01",
    ]:
        with subtests.test(text=text):
            assert TextRange.of(text) is None


@pytest.mark.parametrize("text", ["0-5", "12-40-00c0ffee"])
def test_a_place_is_written_as_it_was_read(text: str):
    assert str(TextRange.of(text)) == text


@pytest.mark.parametrize(
    ("place", "marked"),
    [("100-110", "abcdefghij"), ("103-105", "de"), ("0-102", "ab"), ("108-500", "ij"), ("0-500", "abcdefghij"),
     ("0-100", ""), ("110-120", "")],
)  # fmt: skip
def test_the_part_of_a_chunk_that_lies_in_the_place_is_marked(place: str, marked: str):
    cut = mark(CHUNK, TextRange.of(place))

    assert cut.marked == marked
    assert cut.before + cut.marked + cut.after == CHUNK.text


def test_without_a_place_nothing_is_marked():
    assert mark(CHUNK, None).before == CHUNK.text
