"""Slides, OpenDocument, e-books and RTF: pages, sections, tables and notes, and what is left out."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ingest.parse import parse
from ragkv.errors import Rejected, TooLarge
from tests.support.made_files import (
    NAMES,
    ODF,
    PACKAGE,
    RELATION,
    docx,
    epub,
    odf,
    paragraph,
    pptx,
    runs,
    shape,
    sheet_rows,
    slide,
    xlsx,
)


def table(*rows: list[str]) -> str:
    cells = "".join(
        f"<a:tr>{''.join(f'<a:tc><a:txBody>{runs(c)}</a:txBody></a:tc>' for c in row)}</a:tr>" for row in rows
    )
    return (
        f"<p:graphicFrame><a:graphic><a:graphicData><a:tbl>{cells}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
    )


def related(kind: str, target: str) -> str:
    return f'<Relationship Id="x1" Type="{RELATION}/{kind}" Target="{target}"/>'


def test_slides_are_pages_under_their_titles_with_tables_and_notes():
    first = shape("Some words\nMore words") + shape("Plans", "title") + shape("7", "sldNum")
    second = shape("Figures", "ctrTitle") + table(["City", "Size"], ["Oslo", "700"])
    notes = slide(shape("Say this.", "body") + shape("2", "sldNum"), "notes")
    parsed = parse(
        "a.pptx",
        pptx(
            [first, second],
            {2: related("notesSlide", "../notesSlides/notes.xml")},
            **{"ppt/notesSlides/notes.xml": notes},
        ),
    )

    assert [parsed.text[page.start : page.end] for page in parsed.pages] == [
        "Plans\n\nSome words\nMore words",
        "Figures\n\nCity | Size\n\nCity: Oslo | Size: 700\n\nNotes: Say this.",
    ]
    assert [section.title for section in parsed.sections] == ["Plans", "Figures"]


def test_a_slide_without_a_title_is_called_by_its_number_and_groups_are_looked_into():
    group = f"<p:grpSp><p:grpSp>{shape('Deep words')}</p:grpSp></p:grpSp>"
    assert parse("a.pptx", pptx([group])).text == "Slide 1\n\nDeep words"


def test_of_alternative_content_the_first_is_read():
    both = f"<a:AlternateContent><a:Choice>{shape('new')}</a:Choice><a:Fallback>{shape('old')}</a:Fallback></a:AlternateContent>"
    assert parse("a.pptx", pptx([both])).text == "Slide 1\n\nnew"


def test_an_equation_of_a_slide_is_a_line():
    half = "<m:f><m:num><m:r><a:t>x</a:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
    math = f'<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">{half}</m:oMath>'
    body = shape("Given ").replace("</a:r>", f"</a:r><x:m xmlns:x='x'>{math}</x:m><a:r><a:t>, so it is.</a:t></a:r>")
    assert parse("a.pptx", pptx([body])).text == "Slide 1\n\nGiven x/2, so it is."


def chart_text(chart: str) -> str:
    frame = f'<p:graphicFrame><c:chart xmlns:c="c" {NAMES} r:id="x1"/></p:graphicFrame>'
    return parse("a.pptx", pptx([frame], {1: related("chart", "../charts/c.xml")}, **{"ppt/charts/c.xml": chart})).text


def test_a_chart_is_a_table_of_its_series():
    def series(name: str, values: list[int]) -> str:
        points = "".join(f"<pt><v>{value}</v></pt>" for value in values)
        return (
            f"<ser><tx><v>{name}</v></tx><cat><pt><v>2023</v></pt><pt><v>2024</v></pt></cat><val>{points}</val></ser>"
        )

    assert chart_text(f"<c>{series('Ducks', [1, 2])}{series('Geese', [3, 4])}</c>").endswith(
        "Ducks | Geese\n\n2023 | Ducks: 1 | Geese: 3\n\n2024 | Ducks: 2 | Geese: 4"
    )


def test_a_blank_value_of_a_chart_leaves_the_others_in_their_rows():
    def points(**values: str) -> str:
        written = "".join(f'<pt idx="{place[1:]}"><v>{value}</v></pt>' for place, value in values.items())
        return f'<ptCount val="4"/>{written}'

    categories = points(_0="Q1", _1="Q2", _2="Q3", _3="Q4")
    years = f"<lvl>{categories}</lvl><lvl>{points(_0='2023', _2='2024')}</lvl>"
    for cat, rows in ((categories, ("Q1", "Q2", "Q3", "Q4")), (years, ("2023 Q1", "Q2", "2024 Q3", "Q4"))):
        ducks = f"<ser><tx><v>Ducks</v></tx><cat>{cat}</cat><val>{points(_0='10', _2='30', _3='40')}</val></ser>"
        geese = f"<ser><tx><v>Geese</v></tx><val>{points(_1='5')}</val></ser>"
        assert chart_text(f"<c>{ducks}{geese}</c>").endswith(
            f"{rows[0]} | Ducks: 10\n\n{rows[1]} | Geese: 5\n\n{rows[2]} | Ducks: 30\n\n{rows[3]} | Ducks: 40"
        )


def test_places_of_values_far_apart_take_no_room_in_a_chart():
    point = '<ser><val><ptCount val="4000000000"/><pt idx="{}"><v>7</v></pt></val></ser>'
    assert chart_text(
        f"<c>{point.format(4000000000)}{point.format('9' * 5000)}{point.format(999_999_999)}</c>"
    ).endswith("7")
    with pytest.raises(TooLarge, match="chart"):
        chart_text(f"<c>{''.join(map(point.format, range(3_000)))}</c>")


def test_a_hidden_slide_is_an_empty_page_and_a_missing_part_is_left_out():
    body = pptx(
        [shape("secret"), shape("words")],
        {2: related("notesSlide", "nowhere.xml")},
        **{"ppt/slides/slide1.xml": slide(shape("secret")).replace("<p:sld ", '<p:sld show="0" ')},
    )
    parsed = parse("a.pptx", body)
    assert parsed.text == "Slide 2\n\nwords"
    assert [(page.number, page.end - page.start) for page in parsed.pages] == [(1, 0), (2, len(parsed.text))]


def test_a_merged_cell_of_a_slide_stands_in_each_of_its_rows_and_stacked_headers_are_joined():
    def cell(words: str, spans: str = "") -> str:
        return f"<a:tc {spans}><a:txBody>{runs(words)}</a:txBody></a:tc>"

    covered, below = '<a:tc hMerge="1"/>', '<a:tc vMerge="1"/>'
    rows = (
        cell("City", 'rowSpan="2"') + cell("2023", 'gridSpan="2"') + covered,
        below + cell("Plan") + cell("Actual"),
        cell("Oslo", 'rowSpan="2"') + cell("1") + cell("2"),
        below + cell("3") + cell("4"),
        cell("Rome") + cell("5", 'gridSpan="2"') + covered,
    )
    text = parse(
        "a.pptx", pptx([table().replace("</a:tbl>", f"{''.join(f'<a:tr>{row}</a:tr>' for row in rows)}</a:tbl>")])
    )
    assert text.text.split("\n\n")[1:] == [
        "City | 2023 Plan | 2023 Actual", "City: Oslo | 2023 Plan: 1 | 2023 Actual: 2",
        "City: Oslo | 2023 Plan: 3 | 2023 Actual: 4", "City: Rome | 2023 Plan: 5",
    ]  # fmt: skip


def look(properties: str, words: str) -> str:
    return f"<a:r><a:rPr {properties}/><a:t>{words}</a:t></a:r>"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (look("", "10") + look('baseline="30000"', "6") + look('baseline="0"', "5"), "10^65"),
        (look("", "1010") + look('baseline="-25000"', "2") + look("", ", m") + look('baseline="30%"', "2"), "1010_2, m2"),
        (look("", "is ") + look('strike="sngStrike"', "300 ") + look('strike="dblStrike"', "euro ") + look("", "450"), "is ~~300 euro~~ 450"),
        (look('strike="noStrike"', "a") + "<a:br/>" + look('strike="sngStrike"', "b"), "a ~~b~~"),
    ],
)  # fmt: skip
def test_raised_and_struck_words_of_slides_are_marked(source: str, line: str):
    body = shape("x").replace(runs("x"), f"<a:p>{source}</a:p>")
    assert parse("a.pptx", pptx([body])).text == f"Slide 1\n\n{line}"


def test_items_of_slides_have_the_numbers_that_are_shown():
    def item(words: str, kind: str, more: str = "", level: int = 0) -> str:
        numbering = f'<a:buAutoNum type="{kind}" {more}/>' if kind else ""
        return runs(words).replace("<a:p>", f'<a:p><a:pPr lvl="{level}">{numbering}</a:pPr>')

    items = (
        item("one", "arabicPeriod") + item("inner", "alphaLcParenR", level=1) + item("more", "alphaLcParenR", level=1)
        + item("two", "arabicPeriod") + item("inner", "alphaLcParenR", level=1) + item("apart", "")
        + item("four", "romanUcParenBoth", 'startAt="4"') + item("five", "romanUcParenBoth", 'startAt="4"')
    )  # fmt: skip
    lines = "1. one\na) inner\nb) more\n2. two\na) inner\napart\n(IV) four\n(V) five"
    assert parse("a.pptx", pptx([shape("x").replace(runs("x"), items)])).text == f"Slide 1\n\n{lines}"


def named(part: str, properties: str) -> str:
    """A shape, picture or group with what it says of itself."""
    start, end = part.split(">", 1)
    kind = start.removeprefix("<p:")
    return f"{start}><p:nv{kind}Pr><p:cNvPr {properties}/></p:nv{kind}Pr>{end}"


def test_hidden_shapes_and_slides_are_left_out_and_counted_and_kept_if_asked_for():
    group = f"<p:grpSp>{shape('in a group')}</p:grpSp>"
    frame = table(["a", "b"])
    hidden = [named(group, 'hidden="1"'), named(frame, 'hidden="true"'), named(shape("alone"), 'hidden="1"')]
    shown = named(shape("seen"), 'hidden="0"')
    body = pptx(
        [shape("a slide"), shown + "".join(hidden)],
        **{"ppt/slides/slide1.xml": slide(shape("a slide")).replace("<p:sld ", '<p:sld show="0" ')},
    )
    parsed = parse("a.pptx", body)
    assert (parsed.text, parsed.left_out.hidden_words) == ("Slide 2\n\nseen", 8)
    assert parse("a.pptx", body, keeps_hidden=True).text == (
        "Slide 1\n\na slide\n\nSlide 2\n\nseen\n\nin a group\n\na | b\n\nalone"
    )


def test_what_stands_in_footers_and_behind_slides_alone_is_read_at_the_end():
    footer = shape("Contract HK-2093", "ftr") + shape("5", "sldNum") + shape("May", "dt")
    layout = slide(shape("Click to edit", "body") + shape("Confidential"), "sldLayout")
    parts = {
        "ppt/slideLayouts/l.xml": layout,
        "ppt/slideLayouts/_rels/l.xml.rels": f'<Relationships xmlns="{PACKAGE}">{related("slideMaster", "../m.xml")}</Relationships>',
        "ppt/m.xml": slide(shape("Name", "title") + shape("Harbour Ltd"), "sldMaster"),
    }
    relations = dict.fromkeys((1, 2), related("slideLayout", "../slideLayouts/l.xml"))
    parsed = parse("a.pptx", pptx([shape("one") + footer, shape("Harbour Ltd") + footer], relations, **parts))
    assert parsed.text == "Slide 1\n\none\n\nSlide 2\n\nHarbour Ltd\n\nContract HK-2093\nConfidential"
    assert parsed.pages[-1].end == len(parsed.text)


def test_the_description_of_a_picture_of_a_slide_is_a_line():
    pictures = [
        named("<p:pic></p:pic>", f'descr="{words}"') for words in ("A weir in May", "", "photo.png", "Picture 2")
    ]
    assert parse("a.pptx", pptx(["".join([shape("x"), *pictures])])).text == "Slide 1\n\nx\n\n[Picture: A weir in May]"


def test_an_opendocument_text_has_headings_lists_tables_and_notes():
    content = (
        '<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:h text:outline-level="2">Part</text:h>'
        "<text:p>One<text:s/>two<text:tab/><text:span>three</text:span><text:note><text:note-citation>1</text:note-citation>"
        "<text:note-body><text:p>A note.</text:p></text:note-body></text:note>.</text:p>"
        "<text:list><text:list-item><text:p>first</text:p><text:list><text:list-item><text:p>inner</text:p></text:list-item>"
        "</text:list></text:list-item></text:list><table:table>"
        + "".join(
            f"<table:table-row>{''.join(f'<table:table-cell><text:p>{c}</text:p></table:table-cell>' for c in row)}</table:table-row>"
            for row in (["Name", "Age"], ["Ann", "30"])
        )
        + "</table:table>"
    )
    parsed = parse("a.odt", odf("text", content))
    assert parsed.text == (
        "Part\n\nOne two three [A note.].\n\n* first\n  * inner\n\nName | Age\n\nName: Ann | Age: 30"
    )
    assert [(section.title, section.level) for section in parsed.sections] == [("Part", 2)]
    assert parsed.media_type == "application/vnd.oasis.opendocument.text"


def test_sheets_of_opendocument_are_pages_and_repeated_empty_cells_take_no_time():
    row = (
        '<table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>7</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="16382"/></table:table-row>'
        '<table:table-row table:number-rows-repeated="1048575"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
    )
    parsed = parse(
        "a.ods", odf("spreadsheet", "".join(f'<table:table table:name="{n}">{row}</table:table>' for n in "ab"))
    )
    assert parsed.text == "a\n\n7 | 7\n\nb\n\n7 | 7"
    assert [page.number for page in parsed.pages] == [1, 2]


def sheet(name: str, cell: str, beside: str = "") -> str:
    row = f"<table:table-row><table:table-cell>{cell}</table:table-cell></table:table-row>"
    return f'<table:table table:name="{name}">{beside}{row}</table:table>'


def test_text_boxes_fields_and_annotated_characters_of_opendocument_are_part_of_the_text():
    svg = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    box = (
        f"<draw:frame><draw:text-box><text:p>In a box.</text:p><text:p>More.</text:p></draw:text-box>"
        f"<svg:title {svg}>alternative</svg:title></draw:frame>"
    )
    ruby = "<text:ruby><text:ruby-base>東</text:ruby-base><text:ruby-text>とう</text:ruby-text></text:ruby>京"
    content = f"<text:p>Before{box}after <text:title>The plan</text:title>, {ruby}.</text:p>"
    assert parse("a.odt", odf("text", content)).text == "Before\nIn a box.\nMore.\nafter The plan, 東京."

    cell = f"<office:annotation><text:p>a comment</text:p></office:annotation><text:p>seven{box}</text:p>"
    assert parse("a.ods", odf("spreadsheet", sheet("a", cell))).text == "a\n\nseven In a box. More."
    note = f"<text:note><text:note-body><text:p>A note.{box}</text:p></text:note-body></text:note>"
    assert parse("a.odt", odf("text", f"<text:p>x{note}</text:p>")).text == "x [A note. In a box. More.]"


def test_drawn_words_of_a_sheet_of_opendocument_are_part_of_it_and_those_for_its_editors_are_not():
    message = "<table:help-message><text:p>Enter a number.</text:p></table:help-message>"
    rules = f"<table:content-validations><table:content-validation>{message}</table:content-validation></table:content-validations>"
    drawn = "<table:shapes><draw:custom-shape><text:p>See here.</text:p></draw:custom-shape></table:shapes>"
    sheets = sheet("a", "<text:p>7</text:p>", drawn) + sheet("b", "<text:p>8</text:p>")
    parsed = parse("a.ods", odf("spreadsheet", rules + sheets))
    assert [parsed.text[page.start : page.end] for page in parsed.pages] == ["a\n\n7\n\nSee here.", "b\n\n8"]


def test_words_before_the_first_sheet_are_on_its_page():
    parsed = parse("a.ods", odf("spreadsheet", "<text:p>Before.</text:p>" + sheet("a", "<text:p>7</text:p>")))
    assert [(page.number, parsed.text[page.start : page.end]) for page in parsed.pages] == [(1, "Before.\n\na\n\n7")]


def test_slides_of_opendocument_are_pages():
    frame = '<draw:frame presentation:class="title"><draw:text-box><text:p>Plans</text:p></draw:text-box></draw:frame>'
    page = (
        f"<draw:page><draw:frame><draw:text-box><text:p>words</text:p></draw:text-box></draw:frame>{frame}</draw:page>"
    )
    parsed = parse("a.odp", odf("presentation", page * 2))
    assert parsed.text == "Plans\n\nwords\n\nPlans\n\nwords"
    assert len(parsed.pages) == len(parsed.sections) == 2


def hiding(kind: str, name: str, properties: str, content: str) -> bytes:
    """A file with an automatic style, called by its name."""
    family = properties.partition("-properties")[0]
    style = (
        f'<style:style style:family="{family}" style:name="{name}"><style:{properties}/></style:style>'
        f'<style:style style:family="{family}" style:name="shown"><style:{properties.split(maxsplit=1)[0]}/></style:style>'
    )
    return odf(
        kind,
        "",
        **{
            "content.xml": f'<office:document-content xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0" {ODF}>'
            f"<office:automatic-styles>{style}</office:automatic-styles><office:body><office:{kind}>{content}"
            f"</office:{kind}></office:body></office:document-content>"
        },
    )


def test_hidden_sheets_of_opendocument_are_left_out():
    cell = "<text:p>7</text:p>"
    sheets = sheet("a", cell).replace("<table:table ", '<table:table table:style-name="shown" ') + sheet(
        "secret", cell
    ).replace("<table:table ", '<table:table table:style-name="ta2" ')
    parsed = parse("a.ods", hiding("spreadsheet", "ta2", 'table-properties table:display="false"', sheets))
    assert (parsed.text, len(parsed.pages)) == ("a\n\n7", 1)


def test_a_hidden_slide_of_opendocument_is_an_empty_page():
    pages = "".join(
        f'<draw:page draw:style-name="{style}" draw:name="{style}"><text:p>words</text:p></draw:page>'
        for style in ("dp2", "shown")
    )
    properties = 'drawing-page-properties presentation:visibility="hidden"'
    parsed = parse("a.odp", hiding("presentation", "dp2", properties, pages))
    assert parsed.text == "shown\n\nwords"
    assert [(page.number, page.end - page.start) for page in parsed.pages] == [(1, 0), (2, len(parsed.text))]


def test_an_encrypted_opendocument_asks_for_its_password_to_be_removed():
    body = odf("text", "", **{"META-INF/manifest.xml": "<manifest><encryption-data/></manifest>"})
    with pytest.raises(Rejected, match="remove the password"):
        parse("a.odt", body)


def test_chapters_of_a_book_are_read_in_order_and_called_as_in_its_contents():
    chapters = ["<h1>One</h1><p>first words</p>", "<p>second words</p>", "<script/><p>third&nbsp;words</p>"]
    contents = '<a href="text/c%201.xhtml">Two</a><a href="text/c%201.xhtml#later">Two and a half</a>'
    parsed = parse("a.epub", epub(chapters, contents))
    assert parsed.title == "A book"
    assert parsed.text == "One\n\nfirst words\n\nTwo\n\nsecond words\n\nthird words"
    assert [section.title for section in parsed.sections] == ["One", "Two"]


def test_the_style_sheets_of_a_book_say_what_its_chapters_hide_raise_and_strike():
    chapter = "<p>320<span class='note'>1</span> <span class='old'>a</span> b</p><p class='for-review'>c</p>"
    sheet = "@charset 'utf-8'; .note{vertical-align:super} .old{text-decoration:line-through} .for-review{display:none}"
    manifest = zipfile.ZipFile(io.BytesIO(epub([chapter, chapter]))).read("OPS/book.opf").decode()
    manifest = manifest.replace("</manifest>", '<item id="s" href="style.css" media-type="text/css"/></manifest>')
    body = epub(
        [chapter, f"<style>.old{{text-decoration:none}}</style>{chapter}"],
        **{"OPS/book.opf": manifest, "OPS/style.css": sheet},
    )
    parsed = parse("a.epub", body)
    assert (parsed.text, parsed.left_out.hidden_words) == ("320^1 ~~a~~ b\n\n320^1 a b", 2)


def test_a_book_with_copy_protection_is_refused_but_not_one_with_hidden_fonts():
    def encrypted(path: str) -> str:
        return f'<encryption><CipherReference URI="{path}"/></encryption>'

    assert parse("a.epub", epub(["words"], **{"META-INF/encryption.xml": encrypted("OPS/font.otf")})).text == "words"
    with pytest.raises(Rejected, match="copy-protected"):
        parse("a.epub", epub(["words"], **{"META-INF/encryption.xml": encrypted("OPS/text/c%200.xhtml")}))


def test_rtf_is_read_with_its_code_page_and_tables():
    body = (
        rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0 Arial;}}\f0 \'cf\'f0\'e8\'e2\'e5\'f2 \u8364?\par More {\b words}.\par"
        rb"\trowd Name\cell Age\cell\row\trowd Ann\cell 30\cell\row\pard End.\par}"
    )
    assert parse("a.rtf", body).text == "Привет €\nMore words.\n\nName | Age\n\nName: Ann | Age: 30\n\nEnd."


@pytest.mark.parametrize(
    ("number", "encoding", "words"),
    [
        (10000, "mac_roman", "Größe — 5 €"),
        (10007, "mac_cyrillic", "Волга"),
        (10001, "cp932", "富士山"),
        (936, "gbk", "长江"),
    ],
)
def test_rtf_of_other_code_pages_is_read(number: int, encoding: str, words: str):
    escaped = "".join(f"\\'{byte:02x}" for byte in words.encode(encoding))
    body = f"{{\\rtf1\\mac\\ansicpg{number}\\cocoartf824{{\\fonttbl\\f0 Monaco;}}\\f0 {escaped}}}"
    assert parse("a.rtf", body.encode()).text == words


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (rb"1.5 x 10{\super 6}, 45\super 1\nosupersub  million, 1010{\sub 2}", "1.5 x 10^6, 45^1 million, 1010_2"),
        (rb"It is 320\up6 1\up0 , and 1010{\dn4 2}", "It is 320^1, and 1010_2"),
        (rb"10{\rtlch\fs20\super\insrsid12 1}{\super\insrsid7 2} 10{\super -3}", "10^12 10^-3"),
        (rb"10{\super\u8722?3}, 7\super0 8{\super\plain 9}", "10^−3, 789"),
        (rb"m\fs24{\super 2} 1{\super st} 8\par {\super 7} 8\tab\super 7", "m2 1st 8\n7 8\t7"),
    ],
)
def test_a_superscript_of_rtf_after_a_number_does_not_merge_with_it(source: bytes, text: str):
    assert parse("a.rtf", rb"{\rtf1\ansi " + source + b"}").text == text


def test_characters_that_rtf_writes_in_two_halves_are_whole():
    assert parse("a.rtf", rb"{\rtf1\ansi \u-10174?\u-8265?\u30000?, a half \u-10174?.}").text == "𠮷田, a half ."


@pytest.mark.parametrize("name", ["a.pptx", "a.odt", "a.epub"])
def test_entities_are_refused(name):
    prolog = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>'
    made = {
        "a.pptx": pptx([], **{"ppt/presentation.xml": f"{prolog}<a>&b;</a>"}),
        "a.odt": odf("text", "<text:p>&b;</text:p>", prolog),
        "a.epub": epub(["words"], **{"OPS/text/c 0.xhtml": f"{prolog}<html>&b;</html>"}),
    }
    with pytest.raises(Rejected, match="entities"):
        parse(name, made[name])


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.docx", docx(paragraph("some words of a document " * 50))),
        ("a.pptx", pptx([shape("words", "title") + table(["a", "b"], ["c", "d"])])),
        ("a.xlsx", xlsx({"a": sheet_rows([["a", "b"], [1, 2]])})),
        ("a.odt", odf("text", "<text:p>words</text:p>")),
        ("a.epub", epub(["<p>words</p>"], '<a href="text/c%200.xhtml">One</a>')),
    ],
)
def test_an_archive_that_is_damaged_anywhere_is_refused_or_read_as_if_it_were_whole(name, body):
    """Checksums cover the parts, and what they do not cover changes no text."""
    whole = parse(name, body).text
    texts = list(texts_of_damaged(name, body))

    assert set(texts) == {whole}
    assert len(texts) < len(body) / 13


def test_damage_to_rtf_costs_the_words_beside_it_alone():
    """It has no checksums. Behind its tables of fonts and colours every paragraph stands by itself."""
    words = [f"word{number:02}" for number in range(40)]
    head = rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0 Arial;}}\f0 \'cf\u8364?"
    body = head + b"".join(rf"\par {word}".encode() for word in words) + rb"\par a\cell b\cell\row}"
    texts = list(texts_of_damaged("a.rtf", body, len(head)))

    assert len(texts) > len(body) / 13
    for text in texts:
        assert sum(word not in text for word in words) <= 1


def texts_of_damaged(name: str, body: bytes, start: int = 0) -> Iterator[str]:
    """The texts of a file with bytes that are changed, or that are missing, so that places in an archive are wrong;
    but for those that are refused."""
    for place in range(start, len(body), 13):
        changed = body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :]
        for damaged in (changed, body[:place] + body[place + 5 :]):
            with suppress(Rejected):
                yield parse(name, damaged).text
