"""OpenDocument: merged, hidden, struck and raised text, and words of page headers."""

import pytest

from ingest.parse import Parsed, parse
from ragkv.errors import Rejected
from tests.support.made_files import ODF, odf

HREF = 'xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href'
SVG = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
STYLE = 'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'


def style(name: str, family: str, properties: str, parent: str = "") -> str:
    inherits = f'style:parent-style-name="{parent}"' if parent else ""
    return f'<style:style style:name="{name}" style:family="{family}" {inherits}>{properties}</style:style>'


def text_style(name: str, properties: str, family: str = "text", parent: str = "") -> str:
    return style(name, family, f"<style:text-properties {properties}/>", parent)


def file(
    kind: str, content: str, styles: str = "", masters: str = "", common: str = "", *, keeps_hidden: bool = False
) -> Parsed:
    """A file with automatic styles, common styles, and master pages."""
    document = (
        f"<office:document-content {STYLE} {ODF}><office:automatic-styles>{styles}</office:automatic-styles><office:body>"
        f"<office:{kind}>{content}</office:{kind}></office:body></office:document-content>"
    )
    shared = (
        f"<office:document-styles {STYLE} {ODF}><office:styles>{common}</office:styles>"
        f"<office:master-styles>{masters}</office:master-styles></office:document-styles>"
    )
    return parse("a.odt", odf(kind, "", **{"content.xml": document, "styles.xml": shared}), keeps_hidden=keeps_hidden)


def table(*rows: str) -> str:
    return f'<table:table table:name="T">{"".join(f"<table:table-row{row}</table:table-row>" for row in rows)}</table:table>'


def cells(*words: str, spans: str = "") -> str:
    """Cells of a row; those without words are covered."""
    return "".join(
        f"<table:table-cell {spans}><text:p>{word}</text:p></table:table-cell>"
        if word
        else "<table:covered-table-cell/>"
        for word in words
    )


TALL, WIDE = 'table:number-rows-spanned="2"', 'table:number-columns-spanned="2"'
MERGED = table(
    ">" + cells("Land", spans=TALL) + cells("2023", "", spans=WIDE) + cells("2024", "", spans=WIDE),
    ">" + cells("", "Plan", "Ist", "Plan", "Ist"),
    ">" + cells("Nord", spans=TALL) + cells("1", "2", "3", "4"),
    ">" + cells("", "5", "6", "7", "8"),
)


def test_merged_cells_stand_in_each_of_their_rows_in_every_kind(subtests: pytest.Subtests):
    frame = f"<draw:page><draw:frame>{MERGED}</draw:frame></draw:page>"
    for kind, content in {"text": MERGED, "spreadsheet": MERGED, "presentation": frame}.items():
        with subtests.test(kind):
            assert file(kind, content).text.endswith(
                "Land: Nord | 2023 Plan: 1 | 2023 Ist: 2 | 2024 Plan: 3 | 2024 Ist: 4\n\n"
                "Land: Nord | 2023 Plan: 5 | 2023 Ist: 6 | 2024 Plan: 7 | 2024 Ist: 8"
            )


def test_raised_numbers_and_struck_text_have_their_marks():
    styles = (
        text_style("T1", 'style:text-position="super 58%"')
        + text_style("T2", 'style:text-position="-33% 58%"')
        + text_style("T3", 'style:text-position="0% 100%"')
        + text_style("T4", "", parent="Struck")
        + text_style("T5", 'style:text-line-through-style="none"')
    )
    common = text_style("Struck", 'style:text-line-through-style="solid"')

    def span(name: str, text: str) -> str:
        return f'<text:span text:style-name="{name}">{text}</text:span>'

    content = (
        f"<text:p>10{span('T1', '6')}, 1010{span('T2', '2')}, 10{span('T3', '7')}, m{span('T1', '2')}</text:p>"
        f"<text:p>{span('T4', 'from 300 ' + span('T5', 'or') + ' 310')}<text:s/>450 euro</text:p>"
    )
    assert (
        file("text", content, styles, common=common).text == "10^6, 1010_2, 107, m2\n\n~~from 300~~ or ~~310~~ 450 euro"
    )


def test_a_cell_of_a_struck_style_is_struck():
    styles = text_style("ce1", 'style:text-line-through-type="single"', "table-cell")
    row = cells("300", spans='table:style-name="ce1"') + cells("450")
    assert file("spreadsheet", table(f">{row}"), styles).text == "T\n\n~~300~~ | 450"


HIDDEN_TEXTS = {
    "section": '<text:section text:display="none"><text:p>so it is</text:p><text:list><text:list-item/></text:list></text:section>',
    "condition": '<text:section text:display="condition" text:is-hidden="true"><text:p>so it is</text:p></text:section>',
    "span": '<text:p>seen<text:span text:style-name="T1">so it is</text:span></text:p>',
    "paragraph by its parent": '<text:p text:style-name="P1">so <text:s/> it is</text:p>',
    "field": '<text:p>seen<text:hidden-text text:is-hidden="true">so it is</text:hidden-text></text:p>',
    "hidden paragraph": '<text:p><text:hidden-paragraph text:is-hidden="true"/>so it is</text:p>',
    "item": '<text:list><text:list-item><text:p text:style-name="P1">so it is</text:p></text:list-item></text:list>',
    "row": table(">" + cells("1", "2"), ' table:visibility="collapse">' + cells("so", "it is")),
    "filtered row": table(">" + cells("1", "2"), ' table:visibility="filter">' + cells("so", "it is")),
    "column": '<table:table><table:table-column table:number-columns-repeated="2"/><table:table-column table:visibility="collapse"/>'
    f"<table:table-row>{cells('1', '2', 'so it is')}</table:table-row></table:table>",
}


def test_hidden_text_is_left_out_and_counted(subtests: pytest.Subtests):
    hides = 'text:display="none"'
    styles = text_style("T1", hides) + text_style("P1", "", "paragraph", "Hides")
    common = text_style("Hides", hides, "paragraph")
    for name, content in HIDDEN_TEXTS.items():
        with subtests.test(name):
            parsed = file("text", f"<text:p>seen</text:p>{content}", styles, common=common)
            assert ("so" in parsed.text, parsed.left_out.hidden_words) == (False, 3)
            shown = file("text", f"<text:p>seen</text:p>{content}", styles, common=common, keeps_hidden=True)
            assert "so" in shown.text


def test_words_of_hidden_sheets_and_slides_are_counted():
    hidden = style("ta1", "table", '<style:table-properties table:display="false"/>')
    secret = MERGED.replace("<table:table ", '<table:table table:style-name="ta1" ')
    parsed = file("spreadsheet", table(f">{cells('7')}") + secret, hidden)
    assert (parsed.text, parsed.left_out.hidden_words) == ("T\n\n7", 16)


def test_words_of_page_headers_are_read_once_and_page_numbers_are_not():
    header = "<text:p>Contract HK-77<text:tab/>Page <text:page-number>1</text:page-number> of <text:page-count>9</text:page-count></text:p>"
    unseen = '<style:footer style:display="false"><text:p>unseen</text:p></style:footer>'
    masters = "".join(
        f"<style:master-page><style:header>{header}</style:header>{unseen}<style:header-left>{header}</style:header-left>"
        f"<style:footer-first><text:p>The mill</text:p></style:footer-first></style:master-page>"
        for _ in range(2)
    )
    assert (
        file("text", "<text:p>The mill stands.</text:p>", masters=masters).text == "The mill stands.\n\nContract HK-77"
    )


def test_the_footer_of_slides_is_read_once():
    slides = '<draw:page><draw:frame presentation:class="footer"><draw:text-box><text:p>Draft B</text:p></draw:text-box></draw:frame></draw:page>'
    declared = "<presentation:footer-decl>For the board</presentation:footer-decl>"
    parsed = file("presentation", declared + slides * 2)
    assert parsed.text == "Slide\n\nSlide\n\nDraft B\nFor the board"


def test_a_document_type_without_declarations_is_read_past():
    doctype = '<!DOCTYPE office:document-content PUBLIC "-//OpenOffice.org//DTD OfficeDocument 1.0//EN" "office.dtd"{}>'
    assert parse("a.odt", odf("text", "<text:p>words</text:p>", doctype.format(""))).text == "words"
    with pytest.raises(Rejected, match="entities"):
        parse("a.odt", odf("text", "<text:p>&a;</text:p>", doctype.format(' [<!ENTITY a "words">]')))


def test_styles_that_inherit_from_each_other_end():
    styles = text_style("A", "", parent="B") + text_style("B", "", parent="A")
    assert file("text", '<text:p><text:span text:style-name="A">words</text:span></text:p>', styles).text == "words"


def test_the_description_of_a_picture_is_read_in_its_place_and_that_of_a_drawing_is_not():
    def frame(inside: str, described: str) -> str:
        return f'<draw:frame>{inside}<svg:desc xmlns:svg="svg">{described}</svg:desc></draw:frame>'

    shown = f"<text:p>See {frame('<draw:image/>', 'A weir in May')} and{frame('<draw:object/>', 'a chart')}.</text:p>"
    assert file("text", shown).text == "See [Picture: A weir in May] and."
    slide = f"<draw:page>{frame('<draw:image> </draw:image>', 'A weir in May')}</draw:page>"
    assert file("presentation", slide).text == "Slide\n\n[Picture: A weir in May]"


def test_a_formula_is_a_line_in_its_place(subtests: pytest.Subtests):
    math = "<math xmlns='http://www.w3.org/1998/Math/MathML'><semantics><msup><mi>x</mi><mn>2</mn></msup>"
    formula = f"{math}<annotation encoding='StarMath 5.0'>x^2</annotation></semantics></math>"
    drawn = "".join(f'<draw:{kind} {HREF}="./Object 1"/>' for kind in ("object", "image"))
    frame = f"<draw:frame>{drawn}<svg:desc {SVG}>formula of LibreOffice</svg:desc></draw:frame>"
    paragraph = f"<text:p>It is {frame} now.</text:p>"
    for kind, content, text in (
        ("text", paragraph, "It is x^2 now."),
        ("text", frame, "x^2"),
        ("presentation", f'<draw:page draw:name="S">{frame}</draw:page>', "S\n\nx^2"),
    ):
        with subtests.test(content):
            body = odf(kind, content, **{"Object 1/content.xml": formula})
            assert parse("a.odt", body).text == text
    assert parse("a.odt", odf("text", paragraph)).text == "It is [Picture: formula of LibreOffice] now."
