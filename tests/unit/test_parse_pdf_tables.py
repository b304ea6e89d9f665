"""Tables in PDF become rows with labels, and words in them are found again on the page."""

import time
from collections.abc import Sequence
from functools import partial

import pytest

from ingest.parse import locate, parse
from ingest.parse.quotes import Locating, Quote
from tests.support.drawn_pdf import by_row, drawn_pdf
from tests.support.growth import assert_linear
from tests.support.hostile_files import FONTS, page, stream
from tests.support.made_files import FONT

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


def table(rows: Sequence[Sequence[str]], rules: str, height: int = HEIGHT) -> bytes:
    """A page with words above and below a table."""
    above, below = text_at(LEFT, 760, "Words above it."), text_at(LEFT, 300, "Words below it.")
    return page(stream(f"{above}{cells(rows, height)}{rules}{below}".encode()), FONTS)


def cells(rows: Sequence[Sequence[str]], height: int = HEIGHT) -> str:
    """Column by column."""
    return "".join(
        text_at(LEFT + 5 + WIDTH * column, TOP - 16 - height * number, rows[number][column])
        for column in range(len(rows[0]))
        for number in range(len(rows))
    )


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


def lines_across(rows: Sequence[Sequence[str]], at: Sequence[int] | None = None, height: int = HEIGHT) -> str:
    """Lines from side to side above the rows of these numbers, above and below every row without any."""
    numbers = range(len(rows) + 1) if at is None else at
    right = LEFT + WIDTH * len(rows[0])
    return "".join(f"{LEFT} {TOP - height * n} m {right} {TOP - height * n} l S\n" for n in numbers)


def shades(at: Sequence[int]) -> str:
    """A grey background for each cell of the rows of these numbers."""
    places = ((LEFT + WIDTH * column, TOP - HEIGHT * (number + 1)) for number in at for column in range(len(ROWS[0])))
    return "0.9 g\n" + "".join(f"{x} {y} {WIDTH} {HEIGHT} re f\n" for x, y in places) + "0 g\n"


LABELLED = [
    "Words above it.",
    "City | River | People",
    "City: Vienna | River: Danube | People: 2028000",
    WORDS,
    "City: Ulm | River: Danube | People: 129000",
    "Words below it.",
]


def paragraphs(body: bytes) -> list[str]:
    return parse("a.pdf", body).text.split("\n\n")


def lines_between(rows: Sequence[Sequence[str]]) -> str:
    """The same but for those around the table."""
    right, bottom = LEFT + WIDTH * len(rows[0]), TOP - HEIGHT * len(rows)
    across = (f"{LEFT} {TOP - HEIGHT * n} m {right} {TOP - HEIGHT * n} l S\n" for n in range(1, len(rows)))
    down = (f"{LEFT + WIDTH * n} {TOP} m {LEFT + WIDTH * n} {bottom} l S\n" for n in range(1, len(rows[0])))
    return "".join((*across, *down))


@pytest.mark.parametrize("rules", [lines, boxes, lines_across])
def test_each_row_carries_the_labels_of_the_header(rules):
    assert paragraphs(table(ROWS, rules(ROWS))) == LABELLED


def test_words_that_a_hyphen_parts_within_a_cell_are_one():
    cells_of_rows = (("City", "River"), ("Heidel-/berg", "Neckar/quay"), ("Rhine-/Main", "Main/quay"), ("5 -/6", "a/b"))
    words = "".join(
        by_row(*((LEFT + 5 + WIDTH * n, TOP - 12 - 40 * row, cell.split("/")) for n, cell in enumerate(cells_of_row)))
        for row, cells_of_row in enumerate(cells_of_rows)
    )
    down = "".join(f"{LEFT + WIDTH * n} {TOP} m {LEFT + WIDTH * n} {TOP - 160} l S\n" for n in range(3))
    body = drawn_pdf(f"{words}{down}{lines_across(cells_of_rows, height=40)}")
    text = parse("a.pdf", body).text
    assert text.split("\n\n")[1:] == [
        "City: Heidelberg | River: Neckar quay",
        "City: Rhine-Main | River: Main quay",
        "City: 5 - 6 | River: a b",
    ]
    begin = text.index("Heidelberg")
    assert locate(body, Locating(1, 1, (Quote(text, begin, begin + len("Heidelberg")),)), ()).complete


def test_tables_one_above_the_other_are_two_also_where_their_sides_almost_line_up():
    drawn = f"{cells(ROWS)}{lines(ROWS)}"
    lower = f"q 1 0 0 1 0.4 -250 cm {drawn}Q\n"
    assert paragraphs(page(stream(f"{drawn}{lower}".encode()), FONTS)) == 2 * LABELLED[1:-1]


def test_lines_between_cells_alone_make_a_table_with_its_outer_cells():
    header, *body = ((*row, mark) for row, mark in zip((*ROWS, *MORE), ("Land", *"ABCDEF"), strict=True))
    rows = [header, *body]
    assert "City: Lyon | People: 522000 | Land: B" in paragraphs(table(rows, lines_between(rows)))


class TestLinesAcross:
    def test_the_lines_of_a_paper_are_enough(self):
        """Above and below the header, and at the end."""
        assert paragraphs(table(ROWS, lines_across(ROWS, (0, 1, 4)))) == LABELLED

    @pytest.mark.parametrize("at", [(1, 2, 3, 4), (0, 1, 2, 3), (1, 2, 3)])
    def test_lines_below_each_row_or_above_it_are_enough(self, at: tuple[int, ...]):
        """The header may have no line above it, and the last row none below."""
        rows = [("City", "River", "Land"), *((city, river, f"Land of {city}") for city, river, _ in ROWS[1:])]
        assert paragraphs(table(rows, lines_across(rows, at)))[1:-1] == [
            "City | River | Land",
            "City: Vienna | River: Danube | Land: Land of Vienna",
            "City: Lyon | Land: Land of Lyon",
            "City: Ulm | River: Danube | Land: Land of Ulm",
        ]

    @pytest.mark.parametrize("indent", [-20, 5])
    def test_prose_right_above_the_header_is_no_part_of_it(self, indent: int):
        prose = text_at(LEFT + indent, TOP - 5, "Prose up to here")
        rows = [("City", "River", "Land"), *((*row[:2], f"Land of {row[0]}") for row in ROWS[1:])]
        assert "City: Lyon | Land: Land of Lyon" in paragraphs(table(rows, prose + lines_across(rows, (1, 2, 3, 4))))

    def test_a_row_below_a_header_without_all_labels_is_none(self):
        rows = [("City", "", "Land"), *((city, "Danube", f"Land of {city}") for city, _, _ in (*ROWS[1:], *MORE))]
        assert " | " not in parse("a.pdf", table(rows, lines_across(rows, range(1, len(rows) + 1)))).text

    def test_shaded_rows_are_a_table_where_the_header_is_one_of_them(self):
        assert paragraphs(table(ROWS, shades((0, 2)))) == LABELLED

    def test_shaded_rows_alone_do_not_tell_where_the_header_is(self):
        rows = [(city, river, "many") for city, river, _ in (*ROWS, *MORE)]
        assert " | " not in parse("a.pdf", table(rows, shades((2, 4, 6)))).text

    def test_a_line_between_groups_of_rows_parts_no_table(self):
        rows = (*ROWS, ("Linz", "Danube", "212000"))
        assert paragraphs(table(rows, lines_across(rows, (0, 1, 3, 5))))[-2] == (
            "City: Linz | River: Danube | People: 212000"
        )

    def test_a_cell_of_two_lines_is_one(self):
        rows = (*ROWS[:3], ("", "(and Saone)", ""), ROWS[3])
        body = table(rows, lines_across(rows, (0, 1, 5), 14), 14)
        assert "City: Lyon | River: (and Saone) | People: 522000" in paragraphs(body)
        ruled = table(rows, lines_across(rows, (0, 1, 2, 4, 5), 14), 14)
        assert "City: Lyon | River: (and Saone) | People: 522000" in paragraphs(ruled)

    def test_two_tables_of_one_width_are_two(self):
        between = (
            "A line of prose between the two tables, as wide as all of their columns are together in the end",
            "",
            "",
        )
        rows = (*ROWS, between, ("River", "Mouth", "Length"), *(("Danube", "Sulina", "2850"), ("Rhone", "Fos", "813")))
        found = paragraphs(table(rows, lines_across(rows, (0, 1, 4, 5, 6, 8))))
        assert "City: Ulm | River: Danube | People: 129000" in found
        assert "River: Rhone | Mouth: Fos | Length: 813" in found

    def test_a_label_above_two_columns_leaves_the_words(self):
        for label in ("River and people", "The river and the people that live in it"):
            rows = (("City", label, ""), *ROWS[1:])
            assert "City: " not in parse("a.pdf", table(rows, lines_across(rows, (0, 1, 4)))).text

    def test_prose_between_lines_stays_as_it_was(self):
        long = "many words of a column of prose"
        rows = [("Title", "Title of another")] + [(long[n:] + long[:n], long[-n:] + long[:-n]) for n in range(1, 9)]
        one_column = [("Words of a page", "")] + [(long, "")] * 4
        for each in (rows, one_column):
            ruled, plain = (table(each, rules, 12) for rules in (lines_across(each, (0, 1, len(each)), 12), ""))
            assert " | " not in parse("a.pdf", ruled).text or len(each) == len(rows)
            assert parse("a.pdf", plain).text.count(" | ") == 0

    def test_lines_down_that_part_some_cells_leave_the_words(self):
        down = f"{LEFT + WIDTH} {TOP - HEIGHT} m {LEFT + WIDTH} {TOP - 3 * HEIGHT} l S\n"
        assert "City: " not in parse("a.pdf", table(ROWS, lines_across(ROWS) + down)).text


class TestNoLines:
    def test_a_sheet_with_numbers_is_a_table(self):
        assert paragraphs(table(ROWS, "", 14)) == LABELLED

    def test_years_are_labels_also_beside_an_empty_corner(self):
        rows = (
            ("", "2022", "2023"),
            ("Sales", "1,200", "1,350"),
            ("Costs", "(900)", "(980)"),
            ("Profit", "300", "370"),
        )
        assert paragraphs(table(rows, "", 14))[1:-1] == [
            "2022 | 2023",
            "Sales | 2022: 1,200 | 2023: 1,350",
            "Costs | 2022: (900) | 2023: (980)",
            "Profit | 2022: 300 | 2023: 370",
        ]
        years = (("Born", "1922", "1955"), ("Wed", "1940", "1980"), ("Moved", "1950", "1990"), ("Died", "1990", "2020"))
        assert " | " not in parse("a.pdf", table(years, "", 14)).text

    def test_without_numbers_the_words_stay(self):
        rows = [(city, river, "many") for city, river, _ in ROWS[1:]]
        assert " | " not in parse("a.pdf", table([ROWS[0], *rows], "", 14)).text

    def test_two_columns_are_not_enough(self):
        """A table of contents, or prose beside numbers."""
        assert " | " not in parse("a.pdf", table([(city, people) for city, _, people in ROWS], "", 14)).text

    def test_without_a_header_the_words_stay(self):
        assert " | " not in parse("a.pdf", table([*ROWS[1:], ("Linz", "Danube", "212000")], "", 14)).text


def rules_but(rows: Sequence[Sequence[str]], *without: tuple[str, int, int]) -> str:
    """A line for each side of each cell, but for those above ("across") or to the left of ("down") cells by row and
    column."""
    across = (
        f"{LEFT + WIDTH * n} {TOP - HEIGHT * k} m {LEFT + WIDTH * (n + 1)} {TOP - HEIGHT * k} l S\n"
        for k in range(len(rows) + 1)
        for n in range(len(rows[0]))
        if ("across", k, n) not in without
    )
    down = (
        f"{LEFT + WIDTH * n} {TOP - HEIGHT * k} m {LEFT + WIDTH * n} {TOP - HEIGHT * (k + 1)} l S\n"
        for k in range(len(rows))
        for n in range(len(rows[0]) + 1)
        if ("down", k, n) not in without
    )
    return "".join((*across, *down))


class TestMergedCells:
    STACKED = (
        ("Region", "2023", ""),
        ("", "Plan", "Actual"),
        ("North", "11", "12"),
        ("", "21", "22"),
        ("South", "31", "32"),
    )
    OPEN = (("down", 0, 2), ("across", 3, 0))

    @pytest.mark.parametrize("corner", [(), (("across", 1, 0),)])
    def test_stacked_labels_are_joined_and_a_cell_stands_in_each_of_its_rows(self, corner):
        assert paragraphs(table(self.STACKED, rules_but(self.STACKED, *self.OPEN, *corner)))[1:-1] == [
            "Region | 2023 Plan | 2023 Actual",
            "Region: North | 2023 Plan: 11 | 2023 Actual: 12",
            "Region: North | 2023 Plan: 21 | 2023 Actual: 22",
            "Region: South | 2023 Plan: 31 | 2023 Actual: 32",
        ]

    def test_a_row_with_a_cell_over_several_columns_leaves_the_words(self):
        rules = rules_but(self.STACKED, *self.OPEN, ("across", 1, 0), ("down", 4, 2))
        assert "Region: " not in parse("a.pdf", table(self.STACKED, rules)).text

    def test_cells_that_are_no_rectangle_leave_the_words(self):
        rules = rules_but(self.STACKED, *self.OPEN, ("across", 1, 0), ("across", 4, 1), ("down", 4, 2))
        assert "Region: " not in parse("a.pdf", table(self.STACKED, rules)).text


MORE = (("Linz", "Danube", "212000"), ("Graz", "Mur", "300000"), ("Passau", "Inn", "53000"))


class TestNextPage:
    """A table goes on at the top of the page after it."""

    @staticmethod
    def paragraphs(*contents: str) -> list[str]:
        body = drawn_pdf(*contents)
        parsed = parse("a.pdf", body)
        for number, start, end in ((page_.number, page_.start, page_.end) for page_ in parsed.pages):
            words = parsed.text[start:end]
            located = locate(body, Locating(number, number, (Quote(words, 0, len(words)),)), ())
            assert located.complete, number
        return parsed.text.split("\n\n")

    @pytest.mark.parametrize(
        ("rules", "height"), [(lines, HEIGHT), (boxes, HEIGHT), (lines_across, HEIGHT), (lambda rows: "", 14)]
    )
    def test_rows_carry_the_labels_of_the_first_page(self, rules, height):
        first, *following = (cells(rows, height) + rules(rows) for rows in (ROWS, MORE, MORE[:1]))
        found = self.paragraphs(first, *following, *following)
        labelled = ["City: Linz | River: Danube | People: 212000", "City: Graz | River: Mur | People: 300000"]
        passau = "City: Passau | River: Inn | People: 53000"
        assert found == [*LABELLED[1:5], *labelled, passau, labelled[0], *labelled, passau, labelled[0]]

    def test_a_header_that_is_repeated_is_read_once(self):
        found = self.paragraphs(*(cells(rows) + lines(rows) for rows in (ROWS, (ROWS[0], *MORE))))
        assert found == [*LABELLED[1:5], *found[-3:]]
        assert found[-1] == "City: Passau | River: Inn | People: 53000"

    def test_words_are_no_header_of_their_column(self):
        """Short, distinct words in each cell of the next page."""
        people = [
            ("Name", "Town", "Trade"),
            ("Ida Moe", "Kiel", "nurse"),
            ("Ida Lund", "Bergen", "pilot"),
            ("Ida Dahl", "Oslo", "baker"),
        ]
        following = [("Kai Moe", "Vardal", "tailor"), ("Kai Lund", "Molde", "diver"), ("Kai Dahl", "Skien", "judge")]
        found = self.paragraphs(*(cells(rows) + lines(rows) for rows in (people, following)))
        assert found[-3:] == [f"Name: {name} | Town: {town} | Trade: {trade}" for name, town, trade in following]

    def test_running_lines_part_no_table(self):
        running = [text_at(LEFT, 815, "Rivers of Europe") + text_at(300, 30, f"Page {n}") for n in (1, 2)]
        found = self.paragraphs(
            *(line + cells(rows) + lines(rows) for line, rows in zip(running, (ROWS, MORE), strict=True))
        )
        assert found == ["Rivers of Europe", *LABELLED[1:5], *found[-3:]]
        assert found[-1] == "City: Passau | River: Inn | People: 53000"

    def test_another_table_has_its_own_labels(self):
        lakes = (
            ("Lake", "Land", "Depth"),
            ("Garda", "Italy", "346"),
            ("Como", "Italy", "410"),
            ("Balaton", "Hungary", "12"),
        )
        found = self.paragraphs(*(cells(rows) + lines(rows) for rows in (ROWS, lakes)))
        assert found[-3:] == [f"Lake: {lake} | Land: {land} | Depth: {depth}" for lake, land, depth in lakes[1:]]

    def test_words_below_the_table_or_above_the_next_end_it(self):
        below, above = text_at(LEFT, 300, "Words below it."), text_at(LEFT, 760, "Words above it.")
        first, following = (cells(rows) + lines(rows) for rows in (ROWS, MORE))
        for pages in ((first + below, following), (first, above + following)):
            assert "City: Linz" not in "".join(self.paragraphs(*pages))

    def test_prose_on_the_next_page_is_no_row(self):
        prose = text_at(
            LEFT, 760, "Prose that stands across all of the columns of the table before it, with 3 of its rivers."
        )
        assert self.paragraphs(cells(ROWS) + lines(ROWS), prose)[-1].startswith("Prose that stands")


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


def test_lines_below_many_rows_take_time_in_proportion():
    """In doubt, each line may be the one below a header."""

    def ruled(size: int) -> bytes:
        words = ((n, k, f"w{n} words{k} of a row") for n in range(size) for k in range(4) if (n + k) % 2)
        rows = (f"BT /F1 3 Tf {60 + 120 * k} {830 - 4.2 * n} Td ({row}) Tj ET\n" for n, k, row in words)
        return drawn_pdf(
            "".join(rows) + "".join(f"55 {829 - 4.2 * n} m 560 {829 - 4.2 * n} l S\n" for n in range(size))
        )

    assert_linear(partial(parse, "a.pdf"), ruled, 24)


def test_a_ruled_table_costs_little_more_than_its_words():
    """None of its lines is tried as the one below the header of a table of lines across alone."""
    places = [(LEFT + 80 * column, TOP - 11 * row) for row in range(60) for column in range(6)]
    words = "".join(text_at(x, y, f"w{number}") for number, (x, y) in enumerate(places))
    sides = "".join(f"{x - 2} {y - 3} 80 11 re S\n" for x, y in places)

    def seconds(content: str) -> float:
        body, began = drawn_pdf(content), time.thread_time()
        parse("a.pdf", body)
        return time.thread_time() - began

    assert min(seconds(words + sides) for _ in range(3)) < 3 * min(seconds(words) for _ in range(3))


def cells_of(body: bytes, words: str) -> list[tuple[int, int]]:
    """Column and row of each box over these words."""
    text = parse("a.pdf", body).text
    start = text.index(words)
    located = locate(body, Locating(1, 1, (Quote(text, start, start + len(words)),)), ())
    assert located.complete
    return [(int((box.x - LEFT) // WIDTH), int((842 - TOP) // -1 + box.y) // HEIGHT) for box in located.pages[0].boxes]


def test_words_of_a_row_are_found_on_the_page_with_their_labels():
    """The labels are those of the header: that is where they stand."""
    assert cells_of(table(ROWS, lines(ROWS)), WORDS) == [(0, 0), (0, 2), (2, 0), (2, 2)], "City, Lyon, People, 522000"


WIDE = stream(
    b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Wide def /CMapType 2 def\n"
    b"1 begincodespacerange <00> <ff> endcodespacerange\n"
    b"3 beginbfchar <7c> <d835> <7d> <d835dc01> <7e> <d835dc00> endbfchar\n"
    b"1 beginbfrange <20> <7b> <0020> endbfrange endcmap end end"
)
"""Makes letters beyond the basic plane of the signs } and ~, and half of one of |."""
WIDE_FONT = FONT.replace(b">>", b"/ToUnicode 7 0 R >>")


@pytest.mark.parametrize("rules", [lines, lines_across])
def test_characters_beyond_the_basic_plane_move_no_others(rules):
    """PDFium counts each of them twice, and half of one once."""
    rows = (*ROWS[:2], ("Ly~n", "", "522000"), ROWS[3])
    content = text_at(LEFT, 760, "~}~ | above it.") + cells(rows) + rules(rows)
    body = page(stream(content.encode()), FONTS.replace(b"5 0 R", b"6 0 R"), WIDE_FONT, WIDE)
    words = "City: Ly𝐀n | People: 522000"

    assert paragraphs(body) == ["𝐀𝐁𝐀  above it.", *LABELLED[1:3], words, LABELLED[4]]
    assert cells_of(body, words) == [(0, 0), (0, 2), (2, 0), (2, 2)]
