"""Cells that span rows and columns, and rows of headers that are one."""

import pytest

from ingest.parse.composer import Composer
from ingest.parse.sniff import Format
from ingest.parse.spans import Cell, Columns, join_headers


def lines(*rows: list[str | Cell]) -> list[str]:
    """The lines of a table whose rows have an item for each column."""
    composer, columns = Composer(), Columns()
    composer.table(columns.lay(row) for row in rows)
    return [line for line in composer.parsed("", Format.XLSX).text.split("\n") if line]


YEARS = [Cell("Region", rows=2), Cell("Product", rows=2), Cell("2023", columns=2), "", Cell("2024", columns=2), ""]
PARTS = ["", "", "Plan", "Actual", "Plan", "Actual"]


def test_a_merged_cell_stands_in_each_of_its_rows_and_stacked_headers_are_one():
    assert lines(
        YEARS, PARTS, [Cell("North", rows=2), "Pumps", "1", "2", "3", "4"], ["", "Valves", "5", "6", "7", "8"]
    )[1:] == [
        "Region: North | Product: Pumps | 2023 Plan: 1 | 2023 Actual: 2 | 2024 Plan: 3 | 2024 Actual: 4",
        "Region: North | Product: Valves | 2023 Plan: 5 | 2023 Actual: 6 | 2024 Plan: 7 | 2024 Actual: 8",
    ]


@pytest.mark.parametrize(
    ("header", "label"),
    [
        (
            [
                [Cell("Land", rows=3), Cell("2023", columns=4), "", "", ""],
                ["", Cell("H1", columns=2), "", Cell("H2", columns=2), ""],
                ["", "Soll", "Ist", "Soll", "Ist"],
            ],
            "Land: Wallis | 2023 H1 Soll: 1 | 2023 H1 Ist: 2 | 2023 H2 Soll: 3 | 2023 H2 Ist: 4",
        ),
        (
            [
                [Cell("Ventes de la région", columns=5), "", "", "", ""],
                ["", Cell("Été", columns=2), "", Cell("Hiver", columns=2), ""],
                ["Ville", "Prévu", "Réel", "Prévu", "Réel"],
            ],
            "Ville: Wallis | Été Prévu: 1 | Été Réel: 2 | Hiver Prévu: 3 | Hiver Réel: 4",
        ),
        (
            [[Cell(word, rows=2) for word in ("Name", "A", "B", "C", "D")], [""] * 5],
            "Name: Wallis | A: 1 | B: 2 | C: 3 | D: 4",
        ),
    ],
)
def test_headers_of_three_rows_below_titles_and_of_tall_cells_label_their_columns(
    header: list[list[str | Cell]], label: str
):
    assert lines(*header, ["Wallis", "1", "2", "3", "4"], ["Uri", "5", "6", "7", "8"])[-2] == label


def test_rows_of_a_form_and_of_data_are_no_second_header(subtests: pytest.Subtests):
    wide = Cell("Contact", columns=2)
    for name, rows in {
        "data": [["Name", wide, ""], ["Ann", "Oslo", "Lund"], ["Bob", "Rome", "Bern"]],
        "numbers": [["Name", wide, ""], ["", "1", "2"]],
        "form": [
            [Cell("Name:", columns=2), "", Cell("Ann", columns=2), ""],
            [Cell("City:", columns=2), "", "Oslo", ""],
        ],
    }.items():
        with subtests.test(name):
            assert len(lines(*rows)) == len(rows)


def test_what_stands_in_covered_places_is_left_out():
    assert lines([Cell("a", rows=2, columns=2), "stale", "b"], ["stale", "stale", "c"]) == ["a | b", "a | c"]


def test_spans_add_no_more_than_their_table_has_cells_for():
    columns = Columns()
    rows = [columns.lay([Cell("a", rows=20_000, columns=20_000)])] + [columns.lay(["b"]) for _ in range(1_000)]
    assert sum(map(len, rows)) < 50 * len(rows)


def test_a_region_of_hundreds_of_rows_stands_in_each():
    columns = Columns()
    rows = [columns.lay([Cell("North", rows=500) if n == 0 else "", str(n)]) for n in range(501)]
    assert [row[0] for row in rows] == ["North"] * 500 + [""]
    assert len(list(join_headers(rows))) == 501
