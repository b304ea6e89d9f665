"""Parts of Word documents beside plain paragraphs: forms, hidden and struck words, headers, charts, embedded files."""

import pytest

from ingest.parse import parse
from ingest.parse.parsed import LeftOut
from tests.support.made_files import PACKAGE, RELATION, W, docx, paragraph, sheet_rows, xlsx

W14 = "http://schemas.microsoft.com/office/word/2010/wordml"
OFFICE = f'xmlns:r="{RELATION}" xmlns:w14="{W14}"'


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def para(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def related(*relations: tuple[str, str, str], **parts: bytes | str) -> dict[str, bytes]:
    """Relations of the main part (id, kind, target) and further parts, by their paths below `word`."""
    listed = "".join(
        f'<Relationship Id="{key}" Type="{RELATION}/{kind}" Target="{to}"/>' for key, kind, to in relations
    )
    source = f'<Relationships xmlns="{PACKAGE}">{listed}</Relationships>'
    encoded = {f"word/{path}": part if isinstance(part, bytes) else part.encode() for path, part in parts.items()}
    return {"word/_rels/document.xml.rels": source.encode(), **encoded}


def text_of(body: str, **parts: bytes) -> str:
    return parse("a.docx", docx(body, **parts)).text


def styles(*entries: str) -> dict[str, bytes]:
    return {"word/styles.xml": f'<w:styles xmlns:w="{W}">{"".join(entries)}</w:styles>'.encode()}


def control(state: str, content: str, kind: str = "checkbox") -> str:
    checked = f'<w14:{kind} {OFFICE}><w14:checked w14:val="{state}"/></w14:{kind}>'
    return f"<w:sdt><w:sdtPr>{checked}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"


def old_field(data: str, instruction: str, result: str = "") -> str:
    return (
        f'<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{data}</w:ffData></w:fldChar></w:r>'
        f"<w:r><w:instrText> {instruction} </w:instrText></w:r>"
        f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{result}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


def symbol(font: str, code: str) -> str:
    return f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'


BOXES = {
    "controls": (control("0", run("☐")), control("1", run("☒"))),
    "controls with another sign": (control("false", run("○")), control("true", run("●"))),
    "old fields": (
        old_field('<w:checkBox><w:default w:val="0"/></w:checkBox>', "FORMCHECKBOX"),
        old_field('<w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox>', "FORMCHECKBOX"),
    ),
    "characters": (run("☐"), run("☑")),
    "Wingdings": (symbol("Wingdings", "F0A8"), symbol("Wingdings", "F0FE")),
    "Wingdings 2": (symbol("Wingdings 2", "F0A3"), symbol("Wingdings 2", "F052")),
    "words in Wingdings": (
        run("\uf06f", '<w:rFonts w:ascii="Wingdings" w:hAnsi="Wingdings"/>'),
        run("þ", '<w:rFonts w:ascii="Wingdings" w:hAnsi="Wingdings"/>'),
    ),
}


def test_a_box_stands_before_its_label_ticked_or_not(subtests: pytest.Subtests):
    for name, (empty, ticked) in BOXES.items():
        for gap in (" ", ""):
            with subtests.test(name, gap=gap):
                body = para(run("Medication: "), empty, run(f"{gap}Yes  "), ticked, run(f"{gap}No"))
                assert text_of(body) == "Medication: [ ] Yes [x] No"


def test_words_that_a_font_of_symbols_does_not_have_are_kept():
    fonts = '<w:rFonts w:ascii="Symbol" w:hAnsi="Symbol" w:eastAsia="SimSun"/>'
    assert text_of(para(run("5 ", ""), run("\uf06dm 中文 – a", fonts))) == "5 μμ 中文 – α"


def test_a_ticked_box_in_a_table_stands_in_its_cell():
    def row(*cells: str) -> str:
        return f"<w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"

    rows = row(paragraph("Pump"), para(control("1", run("☒")))) + row(paragraph("Valve"), control("0", para(run("☐"))))
    assert text_of(f"<w:tbl>{rows}</w:tbl>") == "Pump | [x]\nValve | [ ]"


def test_a_list_of_a_form_says_the_chosen_value_alone(subtests: pytest.Subtests):
    entries = '<w:listEntry w:val="Red"/><w:listEntry w:val="Blue"/>'
    listed = '<w:listItem w:displayText="Red" w:value="r"/><w:listItem w:displayText="Blue" w:value="b"/>'
    lists = {
        "control": f"<w:sdt><w:sdtPr><w:dropDownList>{listed}</w:dropDownList></w:sdtPr><w:sdtContent>{run('Blue')}</w:sdtContent></w:sdt>",
        "old field": old_field(f'<w:ddList><w:result w:val="1"/>{entries}</w:ddList>', "FORMDROPDOWN"),
        "its default": old_field(f'<w:ddList><w:default w:val="1"/>{entries}</w:ddList>', "FORMDROPDOWN"),
        "old words": old_field("<w:textInput/>", "FORMTEXT", run("Blue")),
    }
    for name, source in lists.items():
        with subtests.test(name):
            assert text_of(para(run("Colour: "), source, run("."))) == "Colour: Blue."
    outside = old_field(f'<w:ddList><w:result w:val="9"/>{entries}</w:ddList>', "FORMDROPDOWN")
    assert text_of(para(run("Colour: "), outside, run("."))) == "Colour: ."


VANISH = "<w:rPr><w:vanish/></w:rPr>"
HIDDEN = {
    "run": run(" secret words", "<w:vanish/>"),
    "off": run(" secret words", '<w:vanish w:val="1"/>'),
    "style of characters": run(" secret words", '<w:rStyle w:val="C"/>'),
    "style based on one": run(" secret words", '<w:rStyle w:val="B"/>'),
    "box": f'<w:r>{VANISH}<w:pict><v:oval xmlns:v="v"><w:txbxContent>{paragraph("secret words")}</w:txbxContent></v:oval></w:pict></w:r>',
}
STYLES = styles(
    f'<w:style w:type="character" w:styleId="C">{VANISH}</w:style>',
    '<w:style w:type="character" w:styleId="B"><w:basedOn w:val="C"/></w:style>',
    f'<w:style w:type="paragraph" w:styleId="P">{VANISH}</w:style>',
    '<w:style w:type="character" w:styleId="Off"><w:basedOn w:val="C"/><w:rPr><w:vanish w:val="0"/></w:rPr></w:style>',
)


def test_hidden_words_are_left_out_and_counted(subtests: pytest.Subtests):
    for name, hidden in HIDDEN.items():
        with subtests.test(name):
            parsed = parse("a.docx", docx(para(run("The price."), hidden), **STYLES))
            assert (parsed.text, parsed.left_out) == ("The price.", LeftOut(hidden_words=2))
            kept = parse("a.docx", docx(para(run("The price."), hidden), **STYLES), keeps_hidden=True)
            assert " ".join(kept.text.split()) == "The price. secret words"
    row = f"<w:tr><w:trPr><w:hidden/></w:trPr><w:tc>{paragraph('secret words')}</w:tc></w:tr>"
    assert text_of(paragraph("a") + f"<w:tbl>{row}</w:tbl>") == "a"
    assert text_of(paragraph("a") + paragraph("secret", "P"), **STYLES) == "a"


def test_words_that_a_style_or_the_run_shows_are_not_hidden():
    shown = run("one ", '<w:rStyle w:val="Off"/>') + run("two ", '<w:rStyle w:val="C"/><w:vanish w:val="0"/>')
    assert text_of(para(shown, run("three", "<w:webHidden/>")), **STYLES) == "one two three"
    styled = run("four", '<w:rStyle w:val="C"/>')
    twice = f'<w:p><w:pPr><w:pStyle w:val="P"/></w:pPr>{styled}</w:p>'
    assert text_of(twice, **STYLES) == "four"


def test_struck_words_have_marks(subtests: pytest.Subtests):
    struck = styles('<w:style w:type="character" w:styleId="S"><w:rPr><w:strike/></w:rPr></w:style>')
    for properties in ("<w:strike/>", "<w:dstrike/>", '<w:rStyle w:val="S"/>', "<w:b/><w:strike/>"):
        with subtests.test(properties):
            assert text_of(para(run("It is "), run("300", properties), run(" 450.")), **struck) == "It is ~~300~~ 450."
    assert text_of(para(run("300", '<w:rStyle w:val="S"/><w:strike w:val="off"/>')), **struck) == "300"


def header(*lines: str, tag: str = "hdr") -> str:
    return f'<w:{tag} xmlns:w="{W}" xmlns:r="{RELATION}">{"".join(lines)}</w:{tag}>'


def section(*references: tuple[str, str, str], more: str = "") -> str:
    listed = "".join(
        f'<w:{kind}Reference xmlns:r="{RELATION}" w:type="{type_}" r:id="{key}"/>' for kind, type_, key in references
    )
    return f"<w:sectPr>{listed}{more}</w:sectPr>"


def test_headers_and_footers_are_read_once_at_the_end():
    page = para('<w:fldSimple w:instr=" PAGE "><w:r><w:t>3</w:t></w:r></w:fldSimple>')
    linked = f'<w:p><w:hyperlink r:id="rId99">{run("halden.example")}</w:hyperlink></w:p>'
    parts = related(
        ("h1", "header", "header1.xml"), ("h2", "header", "header2.xml"), ("f1", "footer", "footer1.xml"),
        **{
            "header1.xml": header(paragraph("Contract HK-2093-77"), paragraph("Notice"), linked),
            "header2.xml": header(paragraph("Contract HK-2093-77")),
            "footer1.xml": header(page, paragraph("Sender: Marit Osen"), tag="ftr"),
        },
    )  # fmt: skip
    body = paragraph("Notice") + para(
        section(("header", "default", "h1"), ("footer", "default", "f1")).join(("<w:pPr>", "</w:pPr>"))
    )
    body += paragraph("It ends.") + section(("header", "default", "h2"), ("footer", "default", "f1"))
    assert text_of(body, **parts) == "Notice\n\nIt ends.\n\nContract HK-2093-77\n\nhalden.example\n\nSender: Marit Osen"


def test_page_numbers_of_footers_are_left_out_with_the_words_about_them(subtests: pytest.Subtests):
    def numbered(*instructions: str) -> str:
        ends = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")]
        return f" {run('of')} ".join(
            f"{ends[0]}<w:r><w:instrText> {name} </w:instrText></w:r>{ends[1]}{run('3')}{ends[2]}"
            for name in instructions
        )

    tab = "<w:r><w:tab/></w:r>"
    footers = {
        "": para(run("Seite "), numbered("PAGE", "NUMPAGES")),
        "Confidential": para(run("Confidential"), tab, run("Page "), numbered("PAGE")),
        "Offer 4711 of Molde": para(run("Offer 4711 of Molde "), numbered(r"PAGE \* MERGEFORMAT")),
        "4711": para(run("4711")),
    }
    for shown, source in footers.items():
        with subtests.test(shown):
            parts = related(("f1", "footer", "footer1.xml"), **{"footer1.xml": header(source, tag="ftr")})
            text = text_of(paragraph("It ends.") + section(("footer", "default", "f1")), **parts)
            assert text == f"It ends.\n\n{shown}".strip()


def test_a_header_of_first_pages_is_read_where_they_have_their_own():
    parts = related(("h1", "header", "header1.xml"), **{"header1.xml": header(paragraph("Draft"))})
    first = ("header", "first", "h1")
    assert text_of(paragraph("a") + section(first), **parts) == "a"
    assert text_of(paragraph("a") + section(first, more="<w:titlePg/>"), **parts) == "a\n\nDraft"
    assert text_of(section(("header", "default", "h1")), **parts) == "Draft"


CHART = """<c:chartSpace xmlns:c="c" xmlns:a="a"><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Catch in tonnes</a:t></a:r>
</a:p></c:rich></c:tx></c:title><c:plotArea><c:barChart>{}</c:barChart></c:plotArea></c:chart></c:chartSpace>"""
SERIES = """<c:ser><c:tx><c:strRef><c:strCache><c:pt idx="0"><c:v>{0}</c:v></c:pt></c:strCache></c:strRef></c:tx><c:cat>
<c:strRef><c:strCache><c:pt idx="0"><c:v>2024</c:v></c:pt><c:pt idx="1"><c:v>2025</c:v></c:pt></c:strCache></c:strRef></c:cat>
<c:val><c:numRef><c:numCache><c:pt idx="0"><c:v>{1}</c:v></c:pt><c:pt idx="1"><c:v>{2}</c:v></c:pt></c:numCache></c:numRef>
</c:val></c:ser>"""


def drawing(inside: str, described: str = "") -> str:
    frame = f'<wp:inline xmlns:wp="wp"><wp:docPr id="1" name="x" descr="{described}"/><a:graphic xmlns:a="a">{inside}</a:graphic></wp:inline>'
    return f"<w:r><w:drawing>{frame}</w:drawing></w:r>"


def test_a_chart_is_a_table_after_its_paragraph():
    source = CHART.format(SERIES.format("Molde", 731, 688) + SERIES.format("Alta", 12, 14))
    parts = related(("c1", "chart", "charts/chart1.xml"), **{"charts/chart1.xml": source})
    shown = drawing(f'<c:chart xmlns:c="c" xmlns:r="{RELATION}" r:id="c1"/>', "Herring by year")
    assert text_of(para(run("In figures."), shown), **parts) == (
        "In figures.\n\n[Picture: Herring by year]\n\nCatch in tonnes\n\nMolde | Alta\n\n2024 | Molde: 731 | Alta: 12\n\n2025 | Molde: 688 | Alta: 14"
    )
    assert text_of(para(run("In figures."), shown), **related(("c1", "chart", "gone.xml"))).startswith("In figures.")


def test_a_diagram_shows_its_words():
    points = (
        '<d:dataModel xmlns:d="d" xmlns:a="a"><d:pt><a:p><a:r><a:t>Plan</a:t></a:r></a:p></d:pt><d:pt/></d:dataModel>'
    )
    parts = related(("d1", "diagramData", "diagrams/data1.xml"), **{"diagrams/data1.xml": points})
    assert text_of(para(drawing(f'<d:relIds xmlns:d="d" xmlns:r="{RELATION}" r:dm="d1"/>')), **parts) == "Plan"


def test_the_description_of_a_picture_is_a_line():
    old = '<w:r><w:pict><v:shape xmlns:v="v" alt="A barge at the quay"><v:imagedata/></v:shape></w:pict></w:r>'
    body = para(run("See "), drawing("<pic/>", "A crane lifting a boat"), run("here.")) + para(old)
    assert text_of(body) == "See here.\n\n[Picture: A crane lifting a boat]\n\n[Picture: A barge at the quay]"
    assert text_of(para(run("See."), drawing("<pic/>", "image3.png"))) == "See."


def test_words_in_boxes_of_any_shape_are_read_once(subtests: pytest.Subtests):
    content = f"<w:txbxContent>{paragraph('in the box')}</w:txbxContent>"
    vml = f'<w:pict><v:oval xmlns:v="v"><v:textbox>{content}</v:textbox></v:oval></w:pict>'
    shape = f'<w:drawing><wps:wsp xmlns:wps="wps"><wps:txbx>{content}</wps:txbx></wps:wsp></w:drawing>'
    inner = content.replace("in the box", "in the box").replace(
        "</w:txbxContent>", para(f"<w:r>{vml.replace('in the', 'in a')}</w:r>") + "</w:txbxContent>"
    )
    choice = '<mc:AlternateContent xmlns:mc="mc"><mc:Choice>{}</mc:Choice>{}</mc:AlternateContent>'.format
    boxes = {
        "oval": vml,
        "drawing": shape,
        "both": choice(shape, f"<mc:Fallback>{vml}</mc:Fallback>"),
        "choice alone": choice(shape, "<mc:Fallback/>"),
    }
    for name, box in boxes.items():
        with subtests.test(name):
            assert text_of(para(run("before"), f"<w:r>{box}</w:r>")) == "before\n\nin the box"
    nested = f'<w:pict><v:rect xmlns:v="v">{inner}</v:rect></w:pict>'
    assert text_of(para(f"<w:r>{nested}</w:r>")) == "in the box\n\nin a box"


def chunk(name: str, body: bytes) -> str:
    parts = related(("a1", "aFChunk", name), **{name: body})
    return text_of(
        paragraph("Before.") + f'<w:altChunk xmlns:r="{RELATION}" r:id="a1"/>' + paragraph("After."), **parts
    )


MHT = b"MIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html; charset=utf-8\n\n%b\n--b--"
PAGE = b"<html><body><h2>Fees</h2><p>The fee is <s>300</s> 450 euro.</p></body></html>"


def test_a_file_that_a_document_takes_in_is_read_in_its_place(subtests: pytest.Subtests):
    files = {
        "page.html": (PAGE, "Fees\n\nThe fee is ~~300~~ 450 euro."),
        "page.mht": (MHT % PAGE, "Fees\n\nThe fee is ~~300~~ 450 euro."),
        "part.rtf": (rb"{\rtf1\ansi The fee is 450 euro.}", "The fee is 450 euro."),
        "part.txt": (b"The fee\nis 450 euro.", "The fee\nis 450 euro."),
        "part.docx": (docx(paragraph("Fees", "H1") + paragraph("450 euro.")), "Fees\n\n450 euro."),
        "part.xlsx": (xlsx({"a": sheet_rows([["Fee", "Sum"], ["Mooring", 450]])}), "a\n\nFee | Sum\n\nFee: Mooring | Sum: 450"),
    }  # fmt: skip
    for name, (body, shown) in files.items():
        with subtests.test(name):
            assert chunk(name, body) == f"Before.\n\n{shown}\n\nAfter."
    assert chunk("part.bin", b"\x00\x01\x02" * 90) == "Before.\n\nAfter."


def test_headings_of_a_file_that_is_taken_in_are_sections():
    parts = related(("a1", "aFChunk", "a.html"), **{"a.html": PAGE})
    parsed = parse("a.docx", docx(f'<w:altChunk xmlns:r="{RELATION}" r:id="a1"/>' * 2, **parts))
    assert [(section.title, section.level) for section in parsed.sections] == [("Fees", 2)]


def test_an_embedded_sheet_is_read_after_its_paragraph():
    parts = related(
        ("o1", "package", "embeddings/a.xlsx"), **{"embeddings/a.xlsx": xlsx({"Costs": sheet_rows([["Crane", 7]])})}
    )
    shown = f'<w:r><w:object><v:shape xmlns:v="v"/><o:OLEObject xmlns:o="o" xmlns:r="{RELATION}" r:id="o1"/></w:object></w:r>'
    assert text_of(para(run("The costs:"), shown), **parts) == "The costs:\n\nCosts\n\nCrane | 7"


def test_documents_within_documents_end_somewhere():
    inside = docx(paragraph("innermost"))
    for _ in range(6):
        inside = docx(
            paragraph("outer") + f'<w:altChunk xmlns:r="{RELATION}" r:id="a1"/>',
            **related(("a1", "aFChunk", "a.docx"), **{"a.docx": inside}),
        )
    assert parse("a.docx", inside).text == "\n\n".join(["outer"] * 4)


def test_a_link_or_picture_whose_target_is_missing_costs_no_words():
    link = f'<w:hyperlink xmlns:r="{RELATION}" r:id="gone">{run("linked")}</w:hyperlink>'
    assert text_of(para(link, drawing('<a:blip xmlns:r="r" r:embed="gone"/>'))) == "linked"
