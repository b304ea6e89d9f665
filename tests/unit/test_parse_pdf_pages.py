"""PDF pages read by where their words stand: raised numbers, columns, running lines, forms, hidden text, turns."""

import re

import pytest

from ingest.parse import Parsed, locate, parse
from ingest.parse.quotes import Locating, Quote
from ragkv.errors import Rejected, Unsupported
from tests.support.drawn_pdf import Field, by_row, drawn_pdf, text_at
from tests.support.hostile_files import FONTS, page, stream
from tests.support.made_files import FONT

LEFT_COLUMN = [
    "The committee met in March",
    "and reviewed the plan for",
    "the harbour. It found that",
    "no repair could save it.",
]
RIGHT_COLUMN = [
    "The budget of the school",
    "rose by nine percent, and",
    "the rise pays for two new",
    "teachers of physics.",
]
MIDDLE_COLUMN = [
    "Fishermen were given new",
    "berths on the eastern quay",
    "until a pier is built and",
    "opened to all traffic.",
]


def read(body: bytes) -> str:
    """The text, every page of which is found again on the page."""
    parsed = parse("a.pdf", body)
    assert_located(parsed, body)
    return parsed.text


def assert_located(parsed: Parsed, body: bytes) -> None:
    for place in parsed.pages:
        words = parsed.text[place.start : place.end]
        located = locate(body, Locating(place.number, place.number, (Quote(words, 0, len(words)),)), ())
        assert located.complete, place.number


class TestRaisedNumbers:
    def test_a_raised_number_does_not_join_the_number_before(self, subtests):
        smaller = "/F1 6.5 Tf 3.3 Ts ({}) Tj 0 Ts /F1 10 Tf"
        for drawn, words in (
            (f"(costs $320) Tj {smaller.format(1)} ( a seat.) Tj", "costs $320^1 a seat."),
            (f"(5 x 10) Tj {smaller.format(12)} (.) Tj", "5 x 10^12."),
            (f"(10) Tj {smaller.format('-6')} ( m) Tj", "10^-6 m"),
            ("(1010) Tj /F1 7 Tf -1.5 Ts (2) Tj 0 Ts /F1 10 Tf ( is ten) Tj", "1010_2 is ten"),
            ("(45) Tj 3 Ts (2) Tj 0 Ts ( tonnes) Tj", "45^2 tonnes"),
            (f"(1200 m) Tj {smaller.format(2)} (; water) Tj", "1200 m2; water"),
            (f"(Title) Tj T* {smaller.format(1)} ( Before tax.) Tj", "Title\n1 Before tax."),
        ):
            with subtests.test(words):
                assert read(drawn_pdf(f"BT /F1 10 Tf 12 TL 50 700 Td {drawn} ET\n")) == words

    def test_numbers_of_one_size_on_one_line_stay_together(self):
        assert read(drawn_pdf("BT /F1 10 Tf 50 700 Td (12) Tj (34) Tj ET\n")) == "1234"

    def test_a_raised_number_in_a_table_has_its_sign(self):
        rows = (
            ("City", "People", "Area"),
            ("Ulm", "129000", "120"),
            ("Linz", "212000", "96"),
            ("Graz", "300000", "128"),
        )
        cells = "".join(
            text_at(60 + 100 * n, 700 - 14 * k, cell) for k, row in enumerate(rows) for n, cell in enumerate(row)
        )
        raised = cells.replace("(129000) Tj", "(129000) Tj /F1 6.5 Tf 3.3 Ts (1) Tj 0 Ts")
        assert "City: Ulm | People: 129000^1 | Area: 120" in read(drawn_pdf(raised))


class TestColumns:
    def test_columns_that_are_drawn_line_by_line_are_read_one_after_the_other(self, subtests):
        left, right, middle = ("\n".join(lines) for lines in (LEFT_COLUMN, RIGHT_COLUMN, MIDDLE_COLUMN))
        box = "A notice of the council that stands across the whole width of the page"
        for name, content, words in (
            ("two", by_row((50, 700, LEFT_COLUMN), (320, 700, RIGHT_COLUMN)), [left, right]),
            (
                "three",
                by_row((50, 700, LEFT_COLUMN), (220, 700, MIDDLE_COLUMN), (390, 700, RIGHT_COLUMN)),
                [left, middle, right],
            ),
            ("at other heights", by_row((50, 700, LEFT_COLUMN), (320, 694, RIGHT_COLUMN)), [left, right]),
            (
                "a box between",
                by_row((50, 700, LEFT_COLUMN), (250, 700, RIGHT_COLUMN), (50, 648, [box]))
                + by_row((50, 635, MIDDLE_COLUMN), (250, 635, RIGHT_COLUMN)),
                [left, right, box, middle, right],
            ),
            ("right first", by_row((320, 700, RIGHT_COLUMN)) + by_row((50, 700, LEFT_COLUMN)), [left, right]),
        ):
            with subtests.test(name):
                assert read(drawn_pdf(content)) == "\n".join(words)

    def test_a_sidebar_is_read_apart(self):
        side = ["A word of the editor", "on the new pier and", "its opening that was", "held on a Sunday"]
        main = [f"{line} as the people of the town had wished it" for line in LEFT_COLUMN]
        assert read(drawn_pdf(by_row((50, 700, main), (450, 700, side)))) == "\n".join([*main, *side])

    def test_a_word_cut_at_the_end_of_a_column_s_line_is_joined(self):
        cut = [*LEFT_COLUMN[:2], "the harbour and the neigh-", "bours found that out."]
        assert "the neighbours found" in read(drawn_pdf(by_row((50, 700, cut), (320, 700, RIGHT_COLUMN))))

    def test_what_is_drawn_in_order_and_what_is_no_prose_stays_as_it_is(self, subtests):
        labels = (
            ["Name: Ines Moe", "Town: Oslo", "Street: Long 3", "Mail: i@moe.no"],
            ["Date: 3 May", "Sum: 40", "Tax: 8", "Due: 48"],
        )
        pairs = (
            [
                "A chair of old oak wood",
                "A table of old pine wood",
                "A bed of new beech wood",
                "A door of new ash wood",
            ],
            [
                "In March by the old ship",
                "In May by the new railway",
                "In June by the old road",
                "In July by the old ship",
            ],
        )
        for name, content, first_line in (
            ("by column", by_row((50, 700, LEFT_COLUMN)) + by_row((320, 700, RIGHT_COLUMN)), LEFT_COLUMN[0]),
            ("labels", by_row((50, 700, labels[0]), (320, 700, labels[1])), "Name: Ines Moe Date: 3 May"),
            (
                "pairs",
                by_row((50, 700, pairs[0]), (320, 700, pairs[1])),
                "A chair of old oak wood In March by the old ship",
            ),
            (
                "sidebar first",
                by_row((320, 700, [*RIGHT_COLUMN] * 2)) + by_row((50, 700, ["and a short word of"] * 8)),
                RIGHT_COLUMN[0],
            ),
        ):
            with subtests.test(name):
                assert read(drawn_pdf(content)).split("\n")[0] == first_line


def prose(page: int) -> str:
    return by_row((60, 760, [f"line {n} of {page} pages and more words" for n in range(8)]))


def in_corners(*words: str) -> str:
    places = ((24, 820), (300, 820), (24, 18), (540, 18))
    return "".join(text_at(*place, part, 8) for place, part in zip(places, words, strict=True) if part)


class TestRunningLines:
    def test_a_header_is_read_once_apart_and_cuts_no_sentence(self):
        body = drawn_pdf(*(text_at(60, 810, "Halden County - Report 2026") + prose(n) for n in range(1, 5)))
        text = read(body)
        assert text.startswith("Halden County - Report 2026\n\nline 0 of 1")
        assert text.count("Halden County") == 1
        assert "line 7 of 1 pages and more words\nline 0 of 2" in text

    def test_page_numbers_are_not_read(self, subtests):
        for footer in ("{}", "- {} -", "Page {}", "Seite {} von 4", "{}/4", "p. {}"):
            with subtests.test(footer):
                text = read(drawn_pdf(*(prose(n) + text_at(290, 30, footer.format(n)) for n in range(1, 4))))
                assert text == read(drawn_pdf(*map(prose, range(1, 4))))

    def test_what_a_browser_prints_around_a_page_is_not_read(self, subtests):
        address, title = "https://example.com/ferries", "Ferry timetable 2026"
        chromium = ["11/30/26, 12:08 PM", title, address, "1/1"]
        firefox = [title, address, "1 of 1", "30.11.2026, 12:08"]
        for corners in (chromium, firefox):
            with subtests.test(corners):
                assert read(drawn_pdf(prose(1) + in_corners(*corners))) == read(drawn_pdf(prose(1)))
        for other in (["11/30/26, 12:08 PM", title, address, "see page 1"], ["", title, address, "1/1"]):
            with subtests.test(other):
                assert title in read(drawn_pdf(prose(1) + in_corners(*other)))

    def test_a_running_line_with_a_number_is_read_once(self):
        text = read(drawn_pdf(*(prose(n) + text_at(60, 30, f"Annual report | {n + 7}") for n in range(1, 4))))
        assert text.startswith("Annual report | 8\n\n")
        assert text.count("Annual") == 1

    def test_left_and_right_pages_have_their_own(self):
        titles = ("The left title", "The right title")
        text = read(drawn_pdf(*(text_at(60 + 200 * (n % 2), 810, titles[n % 2]) + prose(n) for n in range(6))))
        assert [text.count(title) for title in titles] == [1, 1]

    def test_a_title_that_changes_is_read_each_time(self):
        titles = ["Ducks", "Ducks", "Geese", "Geese"]
        text = read(drawn_pdf(*(text_at(60, 810, title) + prose(n) for n, title in enumerate(titles))))
        assert [text.count(title) for title in ("Ducks", "Geese")] == [1, 1]

    def test_one_of_two_parts_is_no_row_of_a_table_that_goes_on(self):
        """Cited words are located without the pages of that table: here one is damaged."""
        parts = text_at(60, 810, "Halden County") + text_at(400, 810, "Report 2026")
        body = drawn_pdf(*(parts + prose(n) for n in range(1, 9))).replace(b"/Type /Page /", b"/Type /Bage /", 1)
        words = "line 7 of 8 pages and more words"
        assert locate(body, Locating(8, 8, (Quote(words, 0, len(words)),)), ()).complete

    def test_headings_and_words_of_the_body_stay(self):
        chapters = read(drawn_pdf(*(text_at(60, 800, f"Chapter {n}", 18) + prose(n) for n in range(1, 4))))
        assert re.findall(r"Chapter \d", chapters) == ["Chapter 1", "Chapter 2", "Chapter 3"]
        alike = read(drawn_pdf(*(text_at(60, 400, "The same words.") + prose(n) for n in range(1, 4))))
        assert alike.count("The same words.") == 3
        assert read(drawn_pdf(*[text_at(60, 810, "Nothing else")] * 3)).count("Nothing else") == 3


class TestForms:
    def test_a_ticked_box_stands_beside_its_label(self):
        words = (
            text_at(60, 700, "Smokes:")
            + text_at(220, 700, "Yes")
            + text_at(300, 700, "No")
            + text_at(60, 670, "Wasps")
            + text_at(60, 640, "Male")
        )
        fields = (
            Field(200, 698, is_ticked=False, is_radio=True),
            Field(280, 698, is_ticked=True, is_radio=True),
            Field(100, 668, is_ticked=True),
            Field(58, 638, 40, is_ticked=True),
            Field(400, 500, is_ticked=True, flags=2),
        )
        assert read(drawn_pdf(words, fields=fields)) == "Smokes: [ ] Yes [x] No\nWasps [x]\n[x] Male"

    def test_a_value_stands_beside_its_label(self):
        words = text_at(60, 700, "Name:") + text_at(60, 670, "Remarks") + text_at(60, 600, "Last line")
        fields = (
            Field(120, 698, 150, "Ines Halvorsen"),
            Field(60, 654, 200, "Arrives at ten"),
            Field(300, 400, 90, "alone"),
        )
        text = read(drawn_pdf(words, fields=fields))
        assert text == "Name: Ines Halvorsen\nRemarks Arrives at ten\nLast line\nalone"

    def test_boxes_in_a_table_stand_in_their_cells(self):
        names = "".join(text_at(65 + 100 * n, 684, name) for n, name in enumerate(("Kind", "Yes", "No")))
        kinds = "".join(text_at(65, 660 - 24 * n, name) for n, name in enumerate(("Peanuts", "Milk", "Wasps")))
        across = "".join(f"60 {700 - 24 * n} m 360 {700 - 24 * n} l S\n" for n in range(5))
        down = "".join(f"{60 + 100 * n} 700 m {60 + 100 * n} 604 l S\n" for n in range(4))
        fields = [Field(200 + 100 * n, 656 - 24 * k, is_ticked=k == n) for k in range(3) for n in range(2)]
        text = read(drawn_pdf(names + kinds + across + down, fields=fields))
        assert text.split("\n\n")[1:] == [
            "Kind: Peanuts | Yes: [x] | No: [ ]",
            "Kind: Milk | Yes: [ ] | No: [x]",
            "Kind: Wasps | Yes: [ ] | No: [ ]",
        ]


class TestHiddenText:
    SHOWN = text_at(60, 600, "Words that are shown")
    HIDDEN = (
        f"1 g {text_at(60, 650, 'white on white')} 0 g",
        text_at(60, -100, "below the page"),
        text_at(60, 650, "a tenth of a point", 0.1),
        f"1 1 0.99 rg {text_at(170, 600, 'almost white')} 0 g",
    )

    def test_words_that_the_page_does_not_show_are_left_out_and_counted(self, subtests):
        for hidden in self.HIDDEN:
            with subtests.test(hidden):
                body = drawn_pdf(self.SHOWN + hidden)
                parsed = parse("a.pdf", body)
                assert parsed.text == "Words that are shown"
                assert parsed.left_out.hidden_words == len(re.search(r"\((.*)\)", hidden)[1].split())
                kept = parse("a.pdf", body, keeps_hidden=True)
                assert kept.text != parsed.text
                assert_located(kept, body)

    def test_a_file_whose_only_words_are_hidden_is_refused_as_such(self):
        with pytest.raises(Unsupported, match="its text layer is hidden"):
            parse("a.pdf", drawn_pdf(self.HIDDEN[1]))
        with pytest.raises(Rejected, match="it contains no text but hidden words"):
            parse("a.html", b"<p hidden>secret words</p>")

    def test_a_line_that_runs_over_the_edge_is_read_whole(self):
        assert read(drawn_pdf(text_at(500, 600, "Words that are cut at the edge"))) == "Words that are cut at the edge"

    def test_white_words_on_a_colour_and_the_layer_of_a_scan_are_read(self):
        white = f"0 0 0.4 rg 50 690 200 20 re f 1 g {text_at(60, 695, 'White on blue')} 0 g\n"
        without_ink = text_at(60, 650, "Without ink").replace("BT", "BT 3 Tr")
        assert read(drawn_pdf(white + without_ink)) == "White on blue\nWithout ink"


def test_tables_of_turned_pages_are_read(subtests):
    rows = (("City", "People"), ("Vienna", "2028000"), ("Lyon", "522000"))
    cells = "".join(
        text_at(65 + 100 * n, 484 - 24 * k, cell) for k, row in enumerate(rows) for n, cell in enumerate(row)
    )
    across = "".join(f"60 {500 - 24 * n} m 260 {500 - 24 * n} l S\n" for n in range(4))
    down = "".join(f"{60 + 100 * n} 500 m {60 + 100 * n} 428 l S\n" for n in range(3))
    for rotation, matrix in (
        (90, "0 1 -1 0 595 0"),
        (270, "0 -1 1 0 0 842"),
        (180, "-1 0 0 -1 595 842"),
        (0, "0 1 -1 0 595 0"),
    ):
        with subtests.test(rotation=rotation, matrix=matrix):
            text = read(drawn_pdf(f"q {matrix} cm {cells}{across}{down} Q", rotation=rotation))
            assert text == "City | People\n\nCity: Vienna | People: 2028000\n\nCity: Lyon | People: 522000"


def test_lines_of_turned_pages_are_read_from_the_top(subtests):
    lines = [
        "The quick brown fox exam-",
        "ined dogs and goes home",
        "to sleep in the evening",
        "and wakes again at noon",
    ]
    columns = "".join(text_at(60 + 200 * n, 500 - 14 * k, f"{line}") for n in range(2) for k, line in enumerate(lines))
    upright = "".join(text_at(60, 30 - 14 * n, line) for n, line in enumerate(["Printed in Oslo", "by machine"]))
    column = "The quick brown fox examined dogs and goes home\nto sleep in the evening\nand wakes again at noon"
    for rotation, matrix in (
        (0, "0 -1 1 0 0 842"),
        (90, "1 0 0 1 0 0"),
        (180, "0 1 -1 0 595 0"),
        (0, "0 1 -1 0 595 0"),
        (270, "1 0 0 1 0 0"),
    ):
        with subtests.test(rotation=rotation, matrix=matrix):
            text = read(drawn_pdf(f"q {matrix} cm {columns} Q", rotation=rotation))
            assert text.replace("exam-\nined", "examined").split("\nThe")[0] == column
            assert text.count("home\nto sleep in the evening\nand wakes again at noon") == 2
    assert read(drawn_pdf(f"q 0 -1 1 0 0 842 cm {columns} Q {upright}")).endswith("Printed in Oslo\nby machine")


def test_a_hyphen_of_its_own_character_joins_the_lines_that_it_parts():
    """U+2010, which browsers draw; here as the sign ~ of the font."""
    to_unicode = stream(
        b"1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <7e> <2010> endbfchar\n"
        b"1 beginbfrange <20> <7d> <0020> endbfrange"
    )
    lines = (
        text_at(50, 700, "The de~") + text_at(50, 687, "velopments of Rhine~") + text_at(50, 674, "Main are well~known")
    )
    font = FONT.replace(b">>", b"/ToUnicode 7 0 R >>")
    body = page(stream(lines.encode()), FONTS.replace(b"5 0 R", b"6 0 R"), font, to_unicode)
    assert read(body) == "The developments of Rhine-Main are well\u2010known"


def test_words_from_right_to_left_are_spelled_so_where_the_file_names_each_letter() -> None:
    words = "هذا نص عربي לום"
    letters = (f"/Span << /ActualText <FEFF{ord(letter):04X}> >> BDC (x) Tj EMC\n" for letter in reversed(words))
    assert read(drawn_pdf(f"BT /F1 10 Tf 60 700 Td {''.join(letters)}ET")) == words
