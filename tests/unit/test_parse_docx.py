"""Word documents: structure kept, archives that lie refused."""

import io
import zipfile
from unicodedata import normalize

import pytest

from ingest.parse import parse
from ingest.parse.archive import MAX_XML_BYTES
from ragkv.errors import Rejected, TooLarge
from tests.support.made_files import PACKAGE, RELATION, STYLES, W, docx, paragraph


def test_styles_give_the_title_and_the_sections() -> None:
    body = (
        paragraph("Royal houses", "Title") + paragraph("Anna", "H1") + paragraph("A queen.") + paragraph("Youth", "H2")
    )
    parsed = parse("a.docx", docx(body + paragraph("Born.")))
    assert parsed.title == "Royal houses"
    assert [(s.title, s.level) for s in parsed.sections] == [("Royal houses", 1), ("Anna", 1), ("Youth", 2)]
    assert parsed.text == "Royal houses\n\nAnna\n\nA queen.\n\nYouth\n\nBorn."


def style(key: str, base: str, level: str = "") -> str:
    outline = f'<w:pPr><w:outlineLvl w:val="{level}"/></w:pPr>' if level else ""
    return f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="My {key}"/><w:basedOn w:val="{base}"/>{outline}</w:style>'


def test_paragraphs_with_a_level_in_the_outline_are_headings() -> None:
    styles = (
        STYLES + style("Sub", "H2") + style("Deep", "Sub") + style("Contents", "H1", "9") + style("Part", "None", "0")
    )
    outlined = '<w:p><w:pPr><w:outlineLvl w:val="7"/></w:pPr><w:r><w:t>Direct</w:t></w:r></w:p>'
    table = (
        f"<w:tbl><w:tr><w:tc>{paragraph('Name', 'Sub')}</w:tc><w:tc>{paragraph('Year', 'Sub')}</w:tc></w:tr></w:tbl>"
    )
    body = (
        paragraph("Plain", "Contents") + paragraph("One", "Part") + paragraph("Two", "Deep") + paragraph("Three", "H1")
    ) + (outlined + paragraph("long " * 60, "Sub") + table)
    parsed = parse("a.docx", docx(body, **{"word/styles.xml": f'<w:styles xmlns:w="{W}">{styles}</w:styles>'.encode()}))
    assert [(section.title, section.level) for section in parsed.sections] == [
        ("One", 1), ("Two", 2), ("Three", 1), ("Direct", 6),
    ]  # fmt: skip
    assert parsed.text.endswith("Name | Year")


def test_a_numbered_paragraph_of_the_outline_keeps_its_number() -> None:
    heading = item("Scope").replace("</w:pPr>", '<w:outlineLvl w:val="0"/></w:pPr>')
    parsed = parse("a.docx", docx(heading + paragraph("words"), **numbering("")))
    assert parsed.text == "1. Scope\n\nwords" and [section.title for section in parsed.sections] == ["1. Scope"]


def test_the_title_may_come_from_the_properties() -> None:
    core = '<c:p xmlns:c="x" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Plan</dc:title></c:p>'
    assert parse("a.docx", docx(paragraph("words"), **{"docProps/core.xml": core.encode()})).title == "The Plan"


def test_tables_are_lines_with_their_cells_apart() -> None:
    cell = "<w:tc>{}</w:tc>".format
    row = "<w:tr>{}</w:tr>".format
    table = row(cell(paragraph("Name")) + cell(paragraph("Year"))) + row(
        cell(paragraph("Anna")) + cell(paragraph("1702"))
    )
    assert parse("a.docx", docx(f"<w:tbl>{table}</w:tbl>")).text == "Name | Year\nAnna | 1702"


def test_cells_merged_downwards_stand_in_each_of_their_rows() -> None:
    def row(*cells: str, head: str = "") -> str:
        return f"<w:tr>{head}{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"

    merged = '<w:tcPr><w:vMerge w:val="{}"/></w:tcPr>'.format
    head = row(paragraph("Region"), paragraph("City"), head="<w:trPr><w:tblHeader/></w:trPr>")
    rows = row(merged("restart") + paragraph("West"), paragraph("Oslo")) + row(merged("continue"), paragraph("Bergen"))
    assert parse("a.docx", docx(f"<w:tbl>{head}{rows}</w:tbl>")).text.endswith("Region: West | City: Bergen")


@pytest.mark.parametrize("kind", ["page", "column", "textWrapping"])
def test_words_on_both_sides_of_a_break_are_not_joined(kind: str) -> None:
    words = f'Chapter one ends here.</w:t><w:br w:type="{kind}"/><w:t>Chapter two'
    assert parse("a.docx", docx(paragraph(words))).text == "Chapter one ends here.\nChapter two"


def test_a_row_that_begins_in_a_later_column_has_the_labels_of_its_columns() -> None:
    def row(*cells: str, properties: str = "") -> str:
        words = "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in cells)
        return f"<w:tr><w:trPr>{properties}</w:trPr>{words}</w:tr>"

    head = row("Region", "Year", "N", properties="<w:tblHeader/>")
    later = row("2022", "7", properties='<w:gridBefore w:val="1"/>')
    last = row("8", properties='<w:gridBefore w:val="2"/>')
    table = f"<w:tbl>{head}{row('West', '2021', '6')}{later}{last}</w:tbl>"
    assert parse("a.docx", docx(table)).text.split("\n\n") == [
        "Region | Year | N", "Region: West | Year: 2021 | N: 6", "Year: 2022 | N: 7", "N: 8",
    ]  # fmt: skip


def test_a_text_box_is_part_of_the_text() -> None:
    box = (
        '<w:p><w:r><w:pict xmlns:v="urn:schemas-microsoft-com:vml"><v:shape><v:textbox><w:txbxContent>'
        f"{paragraph('in the box')}</w:txbxContent></v:textbox></v:shape></w:pict></w:r></w:p>"
    )
    assert "in the box" in parse("a.docx", docx(paragraph("before") + box)).text


def item(text: str, num_id: int = 1, level: int = 0) -> str:
    numbering = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{num_id}"/></w:numPr>'
    return f"<w:p><w:pPr>{numbering}</w:pPr>{run(text)}</w:p>"


def numbering(*nums: str, first: str = "1", kind: str = "decimal", more: str = "") -> dict[str, bytes]:
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="{first}"/><w:numFmt w:val="{kind}"/>{more}</w:lvl>'
        for level in range(2)
    )
    ids = "".join(
        f'<w:num w:numId="{number}"><w:abstractNumId w:val="7"/>{override}</w:num>'
        for number, override in enumerate(nums, start=1)
    )
    lists = f'<w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>{ids}'
    return {"word/numbering.xml": f'<w:numbering xmlns:w="{W}">{lists}</w:numbering>'.encode()}


def lines(body: str, **parts: bytes) -> list[str]:
    return parse("a.docx", docx(body, **parts)).text.split()


def test_a_list_goes_on_after_paragraphs_that_are_not_part_of_it() -> None:
    between = paragraph("between")
    body = item("Scope") + item("Payment") + between + item("Liability") + between + item("Place")
    listed = ["1.", "Scope", "2.", "Payment", "between", "3.", "Liability", "between", "4.", "Place"]
    assert lines(body, **numbering("")) == listed
    main = f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r1" Type="{RELATION}/officeDocument" Target="word/main.xml"/></Relationships>'
    moved = {
        "_rels/.rels": main.encode(),
        "word/main.xml": f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>',
    }
    assert lines(paragraph("none"), **moved, **numbering("")) == listed


def test_a_level_begins_anew_below_the_next_item_above_it() -> None:
    body = item("A") + item("a", level=1) + item("b", level=1) + paragraph("x") + item("c", level=1) + item("B")
    assert lines(body + item("d", level=1), **numbering(""))[2:] == [
        "1.", "a", "2.", "b", "x", "3.", "c", "2.", "B", "1.", "d",
    ]  # fmt: skip
    goes_on = numbering("", more='<w:lvlRestart w:val="0"/>')
    assert lines(body + item("d", level=1), **goes_on)[-2:] == ["4.", "d"]


def test_a_list_begins_where_it_says_and_with_an_override_anew() -> None:
    override = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/></w:lvlOverride>'
    body = item("a") + item("b", 2) + paragraph("x") + item("c", 2) + paragraph("y") + item("d")
    assert lines(body, **numbering("", override, first="5")) == [
        "5.", "a", "9.", "b", "x", "10.", "c", "y", "11.", "d",
    ]  # fmt: skip


def test_paragraphs_that_are_not_shown_have_no_number_and_bullets_none() -> None:
    gone = (
        item("gone").replace("</w:pPr>", "<w:rPr><w:del/></w:rPr></w:pPr><w:del>").replace("</w:p>", "</w:del></w:p>")
    )
    assert lines(item("a") + gone + item("") + item("c"), **numbering("")) == ["1.", "a", "3.", "c"]
    assert lines(item("a") + paragraph("x") + item("b"), **numbering("", kind="bullet")) == ["*", "a", "x", "*", "b"]


def test_a_style_makes_paragraphs_items_of_its_list() -> None:
    body = paragraph("a", "H2") + paragraph("x") + f'<w:p><w:pPr><w:pStyle w:val="L"/></w:pPr>{run("b")}</w:p>'
    parts = numbering("", more='<w:pStyle w:val="L"/>')  # the last of its levels holds
    assert lines(body + paragraph("y") + paragraph("c", "L"), **parts) == [
        "a", "x", "1.", "b", "y", "2.", "c",
    ]  # fmt: skip


MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def equation(inside: str) -> str:
    return f'<m:oMath xmlns:m="{MATH}">{inside}</m:oMath>'


def number(text: str) -> str:
    return f"<m:r><w:rPr/><m:t>{text}</m:t></m:r>"


def part(name: str, *inside: str) -> str:
    return f"<m:{name}>{''.join(inside)}</m:{name}>"


def delimiters(begin: str, end: str) -> str:
    return f"<m:begChr m:val='{begin}'/><m:endChr m:val='{end}'/>"


X, Y, N = number("x"), number("y"), number("n")
SUM, OTHER_SUM = part("d", part("e", X, number("+"), Y)), part("d", part("e", N, number("+"), X))
EQUATIONS = {
    "E=mc^2": number("E=m") + part("sSup", "<m:sSupPr/>", part("e", number("c")), part("sup", number("2"))),
    "1/2 (x+1)/(2y)": part("f", part("num", number("1")), part("den", number("2")))
    + number(" ")
    + part("f", part("num", X, number("+1")), part("den", number("2"), Y)),
    "x_i^n": part("sSubSup", part("e", X), part("sub", number("i")), part("sup", N)),
    "√(x+y)": part("rad", part("radPr", "<m:degHide m:val='1'/>"), "<m:deg/>", part("e", X, number("+"), Y)),
    "√[3]x": part("rad", part("deg", number("3")), part("e", X)),
    "∑_(i=1)^n x": part(
        "nary",
        part("naryPr", "<m:chr m:val='∑'/>"),
        part("sub", number("i"), number("=1")),
        part("sup", N),
        part("e", X),
    ),
    "∫_a x": part("nary", part("sub", number("a")), "<m:sup/>", part("e", X)),
    "(x+y)^n": part("sSup", part("e", part("d", part("e", X, number("+"), Y))), part("sup", N)),
    "[x, y; n, x]": part(
        "d",
        part("dPr", "<m:begChr m:val='['/><m:endChr m:val=']'/>"),
        part("e", part("m", part("mr", part("e", X), part("e", Y)), part("mr", part("e", N), part("e", X)))),
    ),
    "{x; y": part("d", part("dPr", "<m:begChr m:val='{'/><m:endChr m:val=''/>"), part("e", part("eqArr", part("e", X), part("e", Y)))),
    "lim_(x→0) y": part(
        "func", part("fName", part("limLow", part("e", number("lim")), part("lim", X, number("→0")))), part("e", Y)
    ),
    "x̂ x̅": part("acc", part("e", X)) + number(" ") + part("bar", part("barPr", "<m:pos m:val='top'/>"), part("e", X)),
    "1/((x+y)(n+x)) ((x+y)(n+x))/2": part("f", part("num", number("1")), part("den", SUM, OTHER_SUM))
    + number(" ")
    + part("f", part("num", SUM, OTHER_SUM), part("den", number("2"))),
    "((x+y)+(n+x))/2": part("f", part("num", SUM, number("+"), OTHER_SUM), part("den", number("2"))),
    "((x)(y))^2": part(
        "sSup", part("e", part("d", part("e", X)), part("d", part("e", Y))), part("sup", number("2"))
    ),
    "(x+y)^2 |x+y|^n": part("sSup", part("e", part("d", part("dPr", delimiters("", "")), part("e", X, number("+y")))), part("sup", number("2")))
    + number(" ")
    + part("sSup", part("e", part("d", part("dPr", delimiters("|", "|")), part("e", X, number("+y")))), part("sup", N)),
    "1/(2x) x_(ij)^10": part("f", part("num", number("1")), part("den", number("2x")))
    + number(" ")
    + part("sSubSup", part("e", X), part("sub", number("ij")), part("sup", number("10"))),
    "(n+1; x)": part(
        "d", part("e", part("f", part("fPr", "<m:type m:val='noBar'/>"), part("num", N, number("+1")), part("den", X)))
    ),
    "xy": part("box", part("e", X)) + f"<w:ins>{Y}</w:ins><w:del>{N}</w:del>",
}  # fmt: skip


def test_an_equation_is_a_line(subtests: pytest.Subtests) -> None:
    for line, source in EQUATIONS.items():
        with subtests.test(line):
            body = f"<w:p>{run('Given ')}{equation(source)}{run(', so it is.')}</w:p>"
            assert parse("a.docx", docx(body)).text == normalize("NFC", f"Given {line}, so it is.")


def test_a_superscript_after_a_number_does_not_merge_with_it() -> None:
    raised = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r>'
    assert parse("a.docx", docx(f"<w:p>{run('1.5 x 10')}{raised}{run(' m')}{raised}</w:p>")).text == "1.5 x 10^6 m6"


def test_equations_stand_in_paragraphs_of_their_own_and_in_notes() -> None:
    own = f'<w:p><m:oMathPara xmlns:m="{MATH}"><m:oMathParaPr/>{equation(X)}</m:oMathPara></w:p>'
    note = f'<w:footnotes xmlns:w="{W}"><w:footnote w:id="2"><w:p>{equation(Y)}</w:p></w:footnote></w:footnotes>'
    body = f"<w:p>{run('Given')}<w:r><w:footnoteReference w:id='2'/></w:r></w:p>{own}"
    text = parse("a.docx", docx(body, **{"word/footnotes.xml": note.encode()})).text
    assert text.startswith("Given") and "\n\nx\n\n" in text and "y" in text


def test_words_in_another_direction_fields_and_annotated_characters_are_part_of_the_text() -> None:
    marked = (
        f"<w:bdo w:val='rtl'>{run('חיפה')}</w:bdo>{run(' and ')}<w:dir w:val='ltr'>{run('Oslo')}</w:dir>"
        f"{run(' ')}<w:fldSimple w:instr='DATE'>{run('1 May')}</w:fldSimple>{run(' ')}"
        f"<w:r><w:ruby><w:rt>{run('とう')}</w:rt><w:rubyBase>{run('東')}</w:rubyBase></w:ruby></w:r>"
        "<w:r><w:t>京</w:t><w:cr/><w:t>left</w:t><w:ptab/><w:t>right</w:t></w:r>"
    )
    assert parse("a.docx", docx(f"<w:p>{marked}</w:p>")).text == "חיפה and Oslo 1 May 東京\nleft right"


def test_equations_without_end_are_refused_or_read() -> None:
    deep = part("sSup", part("e", "{}"), part("sup", X))
    for times in (50, 120, 2_000):
        inside = X
        for _ in range(times):
            inside = deep.format(inside)
        try:
            text = parse("a.docx", docx(f"<w:p>{run('words')}{equation(inside)}</w:p>")).text
        except Rejected:
            assert times > 50
        else:
            assert text.startswith("words")


def test_a_document_without_words_is_rejected() -> None:
    with pytest.raises(Rejected, match="no text"):
        parse("a.docx", docx("<w:p/>"))


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_read() -> None:
    bomb = docx(paragraph("words"), **{"word/footnotes.xml": bytes(MAX_XML_BYTES + 1)})
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge, match="unpacks to"):
        parse("a.docx", bomb)


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_is_packed_as_no_office_program_does_is_refused(packing: int) -> None:
    buffer = io.BytesIO(docx(paragraph("words")))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("word/comments.xml", "<a/>", packing)
    with pytest.raises(Rejected, match="packed in an unusual way"):
        parse("a.docx", buffer.getvalue())


def test_markup_of_too_many_elements_in_all_parts_together_is_refused() -> None:
    half = b"<a>" + b"<b/>" * 250_000 + b"</a>"
    with pytest.raises(TooLarge, match="more than 500,000 elements"):
        parse("a.docx", docx(paragraph("words"), **{"word/footnotes.xml": half, "word/endnotes.xml": half}))


@pytest.mark.parametrize(("excess", "refused"), [(1, True), (0, False)])
def test_parts_of_any_kind_may_unpack_to_half_a_gigabyte_together(excess: int, refused: bool) -> None:
    """By the sizes that the archive states: nothing is unpacked to find out."""
    buffer = io.BytesIO(docx(paragraph("words")))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("word/media/film.mp4", b"x")
        others = sum(entry.file_size for entry in archive.infolist()[:-1])
        archive.infolist()[-1].file_size = 512 * 2**20 - others + excess
    if refused:
        with pytest.raises(TooLarge, match="unpacks to 512 MiB: split it"):
            parse("a.docx", buffer.getvalue())
    else:
        assert parse("a.docx", buffer.getvalue()).text == "words"


def test_entities_are_refused() -> None:
    body = docx(paragraph("&a;"), prolog='<!-- --><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>')
    with pytest.raises(Rejected, match="entities"):
        parse("a.docx", body)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(Rejected, match="nested too deeply"):
        parse("a.docx", docx("<w:sdt><w:sdtContent>" * 3000 + "</w:sdtContent></w:sdt>" * 3000))


def test_a_file_cut_short_is_refused() -> None:
    whole = docx(paragraph("words"))
    with pytest.raises(Rejected, match="damaged or cut short"):
        parse("a.docx", whole[: len(whole) // 2])
