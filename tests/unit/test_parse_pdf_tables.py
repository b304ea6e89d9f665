"""Tables in PDF: ruled ones become rows with labels, and words in them are found again on the page."""

from collections.abc import Sequence

import pytest

from ingest.parse import parse
from ingest.parse.page_view import locate
from ingest.parse.quotes import Locating, Quote
from tests.hostile_files import FONTS, page

ROWS = (
    ("City", "River", "People"),
    ("Vienna", "Danube", "2028000"),
    ("Lyon", "", "522000"),
    ("Ulm", "Danube", "129000"),
)
LEFT, TOP, WIDTH, HEIGHT = 60, 700, 150, 24
WORDS = "City: Lyon | People: 522000"


def text_at(x: float, y: float, words: str) -> str:
    return f"BT /F1 10 Tf {x} {y} Td ({words}) Tj ET\n"


def table(rows: Sequence[Sequence[str]], rules: str) -> bytes:
    """A page with words above and below a table, whose cells are written column by column."""
    cells = [
        text_at(LEFT + 5 + WIDTH * column, TOP - 16 - HEIGHT * number, rows[number][column])
        for column in range(len(rows[0]))
        for number in range(len(rows))
    ]
    content = text_at(LEFT, 760, "Words above it.") + "".join(cells) + rules + text_at(LEFT, 300, "Words below it.")
    return page(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content.encode()), FONTS)


def lines(rows: Sequence[Sequence[str]]) -> str:
    """One line for each rule."""
    right, bottom = LEFT + WIDTH * len(rows[0]), TOP - HEIGHT * len(rows)
    across = (f"{LEFT} {TOP - HEIGHT * n} m {right} {TOP - HEIGHT * n} l S\n" for n in range(len(rows) + 1))
    down = (f"{LEFT + WIDTH * n} {TOP} m {LEFT + WIDTH * n} {bottom} l S\n" for n in range(len(rows[0]) + 1))
    return "".join((*across, *down))


def boxes(rows: Sequence[Sequence[str]]) -> str:
    """A rectangle for each cell, as word processors draw them."""
    return "".join(
        f"{LEFT + WIDTH * column + 0.5} {TOP - HEIGHT * (number + 1) + 0.5} {WIDTH - 1} {HEIGHT - 1} re S\n"
        for number in range(len(rows))
        for column in range(len(rows[0]))
    )


@pytest.mark.parametrize("rules", [lines, boxes])
def test_each_row_carries_the_labels_of_the_header(rules):
    assert parse("a.pdf", table(ROWS, rules(ROWS))).text.split("\n\n") == [
        "Words above it.",
        "City | River | People",
        "City: Vienna | River: Danube | People: 2028000",
        WORDS,
        "City: Ulm | River: Danube | People: 129000",
        "Words below it.",
    ]


def test_what_is_no_table_stays_as_it_was():
    """No rules, no header, merged cells, too few rows: the same words in the same order."""
    unruled = parse("a.pdf", table(ROWS, "")).text
    merged = lines(ROWS).replace(f"{LEFT + WIDTH} {TOP} m", f"{LEFT + WIDTH} {TOP - HEIGHT} m")
    assert "City: " not in unruled
    assert parse("a.pdf", table(ROWS, merged)).text == unruled
    for rows in (ROWS[1:], ROWS[:2], [row[:1] for row in ROWS]):
        assert parse("a.pdf", table(rows, lines(rows))).text == parse("a.pdf", table(rows, "")).text


def test_a_page_with_a_multitude_of_lines_stays_as_it_was():
    many = lines(ROWS) + "60 60 m 70 70 l S\n" * 6_000
    assert parse("a.pdf", table(ROWS, many)).text == parse("a.pdf", table(ROWS, "")).text


def test_words_of_a_row_are_found_on_the_page_with_their_labels():
    """The labels are those of the header: that is where they stand."""
    body = table(ROWS, lines(ROWS))
    text = parse("a.pdf", body).text
    start = text.index(WORDS)
    located = locate(body, Locating(1, 1, (Quote(text, start, start + len(WORDS)),)), ())

    assert located.complete
    places = [
        (int((box.x - LEFT) // WIDTH), int((842 - TOP) // -1 + box.y) // HEIGHT) for box in located.pages[0].boxes
    ]
    assert places == [(0, 0), (0, 2), (2, 0), (2, 2)], "City, Lyon, People, 522000"
