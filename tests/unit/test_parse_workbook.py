"""Workbooks: cells as they are shown, merged, hidden, struck, and what stands in page headers alone."""

import pytest

from ingest.parse import Parsed, parse
from ragkv.errors import TooLarge
from tests.support.made_files import MAIN, sheet_cell, sheet_rows, xlsx


def book(rows: str, before: str = "", after: str = "", prefix: str = "", **parts: str) -> Parsed:
    """A workbook of one sheet, with markup before and after its rows, and other parts by their names."""
    names = f'xmlns{":" if prefix else ""}{prefix}="{MAIN}"'
    colon = f"{prefix}:" if prefix else ""
    body = f"{before}<sheetData>{rows}</sheetData>{after}".replace("</", "\0").replace("<", f"<{colon}")
    sheet = f"<{colon}worksheet {names}>{body}</{colon}worksheet>".replace("\0", f"</{colon}")
    written = {f"xl/{name}.xml": f'<{name} xmlns="{MAIN}">{part}</{name}>'.encode() for name, part in parts.items()}
    return parse("a.xlsx", xlsx({"S": ""}, **{"xl/worksheets/sheet1.xml": sheet.encode(), **written}))


def lines(parsed: Parsed) -> list[str]:
    """The lines below the name of the sheet."""
    return [line for line in parsed.text.split("\n")[1:] if line]


def styled(code: str, font: int = 0) -> str:
    """Styles: 0 is plain, 1 has a number format or a font, of which the second is struck."""
    quoted = code.replace('"', "&quot;")
    return (
        f'<numFmts><numFmt numFmtId="164" formatCode="{quoted}"/></numFmts><fonts><font/><font><strike/></font></fonts>'
        f'<cellXfs><xf numFmtId="0" fontId="0"/><xf numFmtId="164" fontId="{font}"/></cellXfs>'
        '<dxfs><dxf><font><strike/></font><numFmt numFmtId="164" formatCode="0.000"/></dxf></dxfs>'
    )


MERGED = sheet_rows(
    [
        ["Region", "Item", "Year 2023", None, "Year 2024"],
        [None, None, "Plan", "Actual", "Plan", "Actual"],
        ["North", "Pumps", 1, 2, 3, 4],
        ["stale", "Valves", 5, 6, 7, 8],
    ]
)
RANGES = "".join(f'<mergeCell ref="{ref}"/>' for ref in ("A1:A2", "B1:B2", "C1:D1", "E1:F1", "A3:A4"))


@pytest.mark.parametrize("prefix", ["", "x"])
def test_merged_cells_stand_in_each_of_their_rows_below_joined_headers(prefix: str):
    assert lines(book(MERGED, after=f"<mergeCells>{RANGES}</mergeCells>", prefix=prefix))[1:] == [
        "Region: North | Item: Pumps | Year 2023 Plan: 1 | Year 2023 Actual: 2 | Year 2024 Plan: 3 | Year 2024 Actual: 4",
        "Region: North | Item: Valves | Year 2023 Plan: 5 | Year 2023 Actual: 6 | Year 2024 Plan: 7 | Year 2024 Actual: 8",
    ]


def test_a_merged_cell_spans_rows_that_are_not_written():
    rows = '<row r="1"><c r="A1"><v>1</v></c><c r="B1"><v>2</v></c></row><row r="4"><c r="B4"><v>3</v></c></row>'
    assert lines(book(rows, after='<mergeCells><mergeCell ref="A1:A4"/></mergeCells>')) == ["1 | 2", "1 | 3"]


def test_a_cell_is_read_as_it_is_shown(subtests: pytest.Subtests):
    for code, value, shown in [
        ('"AC-"0000', 42, "AC-0042"), ("[h]:mm", 1.5625, "37:30"), ('"yes";;"no"', 1, "yes"), ("0.0%", 0.075, "7.5%"),
    ]:  # fmt: skip
        with subtests.test(code):
            parts = {"xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{styled(code)}</styleSheet>'.encode()}
            assert (
                parse("a.xlsx", xlsx({"S": f'<row><c s="1"><v>{value}</v></c></row>'}, **parts)).text == f"S\n\n{shown}"
            )


def test_values_without_a_number_are_read_by_their_kinds():
    cells = (
        '<row><c t="b"><v>1</v></c><c t="str"><v>a_x000D_b</v></c><c t="e"><v>#DIV/0!</v></c>'
        '<c t="d"><v>2024-01-02T03:04:05</v></c><c t="str"><f>""</f><v></v></c></row>'
    )
    assert lines(book(cells)) == ["TRUE | a b | #DIV/0! | 2024-01-02 03:04:05"]


def test_a_formula_without_a_stored_result_says_so():
    cells = '<row><c><f>SUM(A1:A2)</f><v/></c><c><f t="shared" si="0"/></c><c><f>1+1</f><v>2</v></c></row>'
    assert lines(book(cells)) == ["=SUM(A1:A2) (not calculated) | = (not calculated) | 2"]


def test_raised_numbers_and_struck_words_of_a_cell_have_their_marks():
    def run(text: str, look: str = "") -> str:
        return f"<r><rPr>{look}</rPr><t>{text}</t></r>"

    raised = (
        run("10")
        + run("6", '<vertAlign val="superscript"/>')
        + run(" of CO")
        + run("2", '<vertAlign val="subscript"/>')
    )
    struck = run("300 euro ", "<strike/>") + run("x", '<strike val="0"/>') + run("450")
    phonetic = "<t>東京</t><rPh><t>トウキョウ</t></rPh>"
    strings = "".join(f"<si>{text}</si>" for text in (raised, struck, phonetic))
    cells = "".join(f'<c t="s"><v>{number}</v></c>' for number in range(3)) + f'<c t="inlineStr"><is>{raised}</is></c>'
    parsed = book(f"<row>{cells}</row>", sharedStrings=strings)
    assert lines(parsed) == ["10^6 of CO2 | ~~300 euro~~ x450 | 東京 | 10^6 of CO2"]


def test_cells_of_a_struck_style_are_struck():
    parts = {"xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{styled("0.0", font=1)}</styleSheet>'.encode()}
    cells = '<row><c s="1"><v>300</v></c><c s="1" t="str"><v>euro</v></c><c><v>450</v></c></row>'
    assert parse("a.xlsx", xlsx({"S": cells}, **parts)).text == "S\n\n~~300.0~~ | ~~euro~~ | 450"


HIDDEN = sheet_rows([["Part", "Price", "Cost"], ["Pump", 900, 610], ["Ghost", 1, 2], ["Seal", 7, 2]])


def test_hidden_rows_and_columns_are_left_out_and_counted():
    rows = HIDDEN.replace('<row r="3">', '<row r="3" hidden="1">')
    columns = '<cols><col min="3" max="16384" hidden="1"/></cols>'
    parsed = book(rows, columns)
    assert lines(parsed) == ["Part | Price", "Part: Pump | Price: 900", "Part: Seal | Price: 7"]
    assert parsed.left_out.hidden_words == len(["Cost", "610", "Ghost", "1", "2", "2"])
    body = xlsx({"S": rows}, {"S": "veryHidden"})
    assert "Ghost" in parse("a.xlsx", body, keeps_hidden=True).text


def test_hidden_sheets_and_contents_that_a_format_hides_are_counted():
    styles = {"xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{styled(";;;")}</styleSheet>'.encode()}
    cells = '<row><c><v>1</v></c><c s="1"><v>610</v></c><c s="1"><v>0</v></c><c s="1" t="str"><v>so it is</v></c></row>'
    parsed = parse("a.xlsx", xlsx({"A": cells, "B": HIDDEN}, {"B": "hidden"}, **styles))
    assert (parsed.text, parsed.left_out.hidden_words) == ("A\n\n1", 4 + 12)


def test_a_merged_cell_that_begins_in_a_hidden_row_or_column_is_shown_in_the_others():
    rows = sheet_rows([["North", 1], [None, 2], ["wide", None, 3]]).replace('<row r="1">', '<row r="1" hidden="1">')
    ranges = '<mergeCells><mergeCell ref="A1:A2"/><mergeCell ref="A3:B3"/></mergeCells>'
    assert lines(book(rows, after=ranges)) == ["North | 2", "wide | 3"]
    assert lines(book(rows, '<cols><col min="1" max="1" hidden="1"/></cols>', ranges)) == ["2", "wide | 3"]


def test_words_of_page_headers_are_read_once_and_fields_are_not():
    margins = (
        "<headerFooter><oddHeader>&amp;L&amp;&quot;Arial,Bold&quot;&amp;12Contract HK-77 &amp;&amp; annex&amp;CFees&amp;RPage &amp;P of &amp;N</oddHeader>"
        "<oddFooter>&amp;C&amp;KFF0000Confidential, &amp;D</oddFooter><evenHeader>&amp;LContract HK-77 &amp;&amp; annex</evenHeader></headerFooter>"
    )
    parsed = book(sheet_rows([["Fees", "Sum"], ["Rent", 900]]), after=margins)
    assert parsed.text == "S\n\nFees | Sum\n\nFees: Rent | Sum: 900\n\nContract HK-77 & annex"


def test_cells_far_apart_are_read_and_too_many_are_refused():
    far = f'<row r="1">{sheet_cell("A1", 1)}</row><row r="1048576">{sheet_cell("XFD1048576", 2)}</row>'
    assert lines(book(far)) == ["1", "2"]
    with pytest.raises(TooLarge, match="more than 8,000,000 cells"):
        book("".join(f'<row r="{n}">{sheet_cell(f"XFD{n}", 1)}</row>' for n in range(1, 500)))
