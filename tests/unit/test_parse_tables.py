"""CSV and workbooks: delimiters, headers that every row carries, sheets as pages."""

import pytest

from ingest.parse import parse
from ragkv.errors import Rejected
from tests.support.made_files import sheet_rows, xlsx


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_each_row_carries_the_labels_of_the_header_whatever_the_delimiter(delimiter):
    rows = [["Name", "City", "Rate"], ["Ann", "Oslo", "1.5"], ["Bob", "", "2.5"]]
    body = "\n".join(delimiter.join(row) for row in rows).encode()

    assert parse("a.csv", body).text == (
        "Name | City | Rate\n\nName: Ann | City: Oslo | Rate: 1.5\n\nName: Bob | Rate: 2.5"
    )


def test_the_delimiter_is_the_one_that_cuts_rows_evenly():
    """Decimal commas do not make columns."""
    assert parse("a.csv", "Größe;Preis\n1,5;2\n2,5;3,75\n7;1\n".encode("cp1252")).text.endswith("Größe: 7 | Preis: 1")


def test_a_declared_delimiter_goes_before_a_guess():
    assert parse("a.csv", b"sep=:\nName:Age\nAnn:1,2,3\n").text == "Name | Age\n\nName: Ann | Age: 1,2,3"


def test_utf_16_with_tabs_as_excel_writes_it_is_read():
    assert (
        parse("a.csv", "\ufeffName\tAge\r\nZoë\t30\r\n".encode("utf-16-le")).text == "Name | Age\n\nName: Zoë | Age: 30"
    )


def test_a_quoted_cell_may_hold_delimiters_lines_and_quotes():
    assert parse("a.csv", b'Name,Note\nAnn,"one, ""two""\nthree"\n').text.endswith('Name: Ann | Note: one, "two" three')


def test_a_quote_that_is_never_closed_swallows_nothing():
    text = parse("a.csv", b'Name,Height\nAnn,"5\n' + b"Bob,6\n" * 2_000).text
    assert text.startswith('Name | Height\n\nName: Ann | Height: "5\n\nName: Bob | Height: 6')


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"1,2\n3,4\n", "1 | 2\n3 | 4"),
        (b"Ann,ann@example.org\nBob,bob@example.org\n", "Ann | ann@example.org\nBob | bob@example.org"),
        (b"yes,no\nyes,yes\n", "yes | no\nyes | yes"),
        (b"words\nmore words\n", "words\nmore words"),
    ],
)
def test_a_first_row_of_values_is_no_header(body, text):
    assert parse("a.csv", body).text == text


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([["Rated voltage", "230 V"], ["Colour", "red"], ["Protection", "IP 54"]], "Colour | red"),
        ([["Invoice", "2024-17"], ["Date", "1 May 2024"], ["Total", "£120.00"]], "Total | £120.00"),
        ([["Customer", "ACME"], ["Order", "PO-17"], ["City", "Oslo"], ["Amount", 120]], "Amount | 120"),
        ([["Customer", "ACME"], ["Date", "2024-03-01"], ["Amount", 120]], "Date | 2024-03-01"),
        ([["Customer:", "ACME"], ["City:", "Oslo"], ["Contact:", "Ann"]], "City: | Oslo"),
        ([["Name:", "Ann", "Born:", "1980"], ["City:", "Oslo", "Role:", "Boss"]], "City: | Oslo | Role: | Boss"),
        ([["Region", "2023 actual"], ["North", 5], ["South", 7]], "Region: North | 2023 actual: 5"),
        ([["Name", "Price"], ["Bolt", 5], ["Nut", "on request"]], "Name: Nut | Price: on request"),
    ],
)
def test_names_of_a_form_beside_their_values_are_no_header(rows: list[list[object]], line: str) -> None:
    assert line in parse("a.xlsx", xlsx({"Form": sheet_rows(rows)})).text.split("\n")


def test_years_are_labels_and_a_title_above_the_table_is_not():
    text = parse("a.csv", b"Population\nRegion,2019,2020\nNorway,5.3,5.4\n").text
    assert text == "Population\nRegion | 2019 | 2020\n\nRegion: Norway | 2019: 5.3 | 2020: 5.4"
    rows: list[list[object]] = [[None, "2019", "2020"], ["Norway", 5.3, 5.4], ["Sweden", 10.2, 10.3]]
    body = xlsx({"Population": sheet_rows(rows)})
    assert "Sweden | 2019: 10.2 | 2020: 10.3" in parse("a.xlsx", body).text


def test_a_long_label_is_shortened_in_the_rows_but_whole_in_the_header():
    question = "How satisfied are you with " + "the many parts of " * 10 + "it?"
    header, row = parse("a.csv", f"Who,{question}\nAnn,very\n".encode()).text.split("\n\n")
    assert question in header
    assert row.startswith("Who: Ann | How satisfied are you") and row.endswith("…: very") and len(row) < 120


def test_sheets_are_pages_and_sections_and_hidden_ones_are_left_out():
    first, second = sheet_rows([["Name", "Age"], ["Ann", 30.0]]), sheet_rows([["Sum"], [0.1], [1e20]])
    parsed = parse("a.xlsx", xlsx({"People": first, "Notes": first, "Empty": "", "Sums": second}, {"Notes": "hidden"}))

    assert parsed.text == "People\n\nName | Age\n\nName: Ann | Age: 30\n\nSums\n\nSum\n0.1\n1e+20"
    assert [parsed.text[page.start : page.end].split("\n")[0] for page in parsed.pages] == ["People", "Sums"]
    assert [(section.title, section.level) for section in parsed.sections] == [("People", 1), ("Sums", 1)]


def test_dates_are_iso_and_truth_values_words():
    cells = '<row><c r="A1" s="1"><v>45292</v></c><c r="B1" t="b"><v>1</v></c></row>'
    assert parse("a.xlsx", xlsx({"a": cells})).text == "a\n\n2024-01-01 | TRUE"


def test_tables_apart_by_a_blank_row_have_headers_of_their_own():
    rows = [["Name", "Age"], ["Ann", 30], [None], ["City", "Size"], ["Oslo", 700], [None], ["Rome", 2800]]
    text = parse("a.xlsx", xlsx({"a": sheet_rows(rows)})).text
    assert text.split("\n\n")[1:] == [
        "Name | Age", "Name: Ann | Age: 30", "City | Size", "City: Oslo | Size: 700", "City: Rome | Size: 2800",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "name,city\nAnn,Oslo\nBea,Bern\n\nBob,Paris\nCid,Rome",
        "name,city\n\n\nAnn,Oslo\nBea,Bern\n,\nBob,Paris\nCid,Rome",
    ],
)
def test_rows_below_a_blank_one_keep_the_labels_of_their_columns(source: str):
    expected = [
        "name | city", "name: Ann | city: Oslo", "name: Bea | city: Bern", "name: Bob | city: Paris", "name: Cid | city: Rome",
    ]  # fmt: skip
    assert parse("a.csv", source.encode()).text.split("\n\n") == expected
    rows = [line.split(",") if line.strip(",") else [None] for line in source.split("\n")]
    assert parse("a.xlsx", xlsx({"a": sheet_rows(rows)})).text.split("\n\n")[1:] == expected


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        ("name,city\nAnn,Oslo\n\nname,city\nBob,Paris", ["name | city", "name: Bob | city: Paris"]),
        ("name,city\nAnn,Oslo\n\nitem,price\nBolt,5", ["item | price", "item: Bolt | price: 5"]),
        ("name,city,age\nAnn,Oslo,5\n\nitem,colour\nBolt,red", ["item | colour", "item: Bolt | colour: red"]),
        ("name,city\nAnn,Oslo\n\nParts,\nitem,colour\nBolt,red", ["Parts\nitem | colour", "item: Bolt | colour: red"]),
        ("By:,Bea\n\nname,city\nAnn,Oslo", ["By: | Bea\nname | city", "name: Ann | city: Oslo"]),
    ],
)
def test_a_header_below_a_blank_row_labels_a_table_of_its_own(source: str, blocks: list[str]):
    rows = [line.split(",") if line else [None] for line in source.split("\n")]
    text = parse("a.xlsx", xlsx({"a": sheet_rows(rows)})).text
    assert text.split("\n\n")[-2:] == blocks


def test_entities_are_refused_in_any_part():
    with pytest.raises(Rejected, match="entities"):
        parse("a.xlsx", xlsx({"a": ""}, **{"xl/x.bin": b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"}))


def test_a_damaged_workbook_is_refused_with_what_to_do():
    with pytest.raises(Rejected, match="save it again"):
        parse("a.xlsx", xlsx({"a": "<row><c><v>1</row>"}))
