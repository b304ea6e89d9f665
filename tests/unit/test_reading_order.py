"""The order in which lines of a page are read."""

from ingest.ocr.reading_order import Placed, blocks


def read(*lines: tuple[str, float, float, float]) -> str:
    """Lines as (words, left, top, right), 10 high: what is read, rows as lines, blocks apart."""
    placed = [Placed(n, left, top, right, top + 10) for n, (_, left, top, right) in enumerate(lines)]
    return "\n\n".join(
        "\n".join(" ".join(lines[one.index][0] for one in row) for row in block) for block in blocks(placed)
    )


def test_columns_of_prose_are_read_one_after_the_other_below_their_title():
    left = [(f"left {n}", 0, 40 + 12 * n, 200) for n in range(3)]
    right = [(f"right {n}", 230, 40 + 12 * n, 430) for n in range(3)]
    mixed = [line for pair in zip(left, right, strict=True) for line in pair]

    assert read(("Title over both", 100, 0, 330), *mixed) == (
        "Title over both\n\nleft 0\nleft 1\nleft 2\n\nright 0\nright 1\nright 2"
    )


def test_rows_of_a_table_are_read_across():
    rows = [[(f"name {n}", 0, 12 * n, 40), (f"{n}", 200, 12 * n + 1, 210)] for n in range(4)]

    assert read(*[cell for row in rows for cell in row]) == "name 0 0\nname 1 1\nname 2 2\nname 3 3"


def test_addresses_beside_each_other_whose_lines_do_not_match_are_columns():
    left = [(f"a{n}", 0, 16 * n, 60) for n in range(4)]
    right = [(f"b{n}", 100, 7 + 17 * n, 160) for n in range(4)]

    assert read(*left, *right) == "a0\na1\na2\na3\n\nb0\nb1\nb2\nb3"


def test_a_gap_between_lines_begins_a_paragraph():
    assert read(("one", 0, 0, 90), ("two", 0, 12, 90), ("three", 0, 40, 90)) == "one\ntwo\n\nthree"


def test_lines_that_stand_far_apart_may_be_many():
    lines = [(str(n), 0.0, 25.0 * n, 90.0) for n in range(1200)]

    assert read(*lines).split("\n\n") == [words for words, *_ in lines]


def test_a_page_without_lines_has_no_blocks():
    assert blocks([]) == []
