"""Numbers of lists, clauses and headings in Word documents, as Word shows them."""

import pytest

from ingest.parse import parse
from tests.support.made_files import PACKAGE, RELATION, W, docx, paragraph


def item(text: str, num_id: int = 1, level: int = 0, style: str = "") -> str:
    """A paragraph with its place in a list, in a style."""
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    numbered = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{num_id}"/></w:numPr>'
    return f"<w:p><w:pPr>{styled}{numbered}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def level(depth: int, kind: str, text: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/>{more}<w:lvlText w:val="{text}"/></w:lvl>'


def numbering(levels: str, *nums: str) -> dict[str, bytes]:
    """One abstract numbering, and lists that refer to it with what they override."""
    lists = "".join(
        f'<w:num w:numId="{number}"><w:abstractNumId w:val="7"/>{override}</w:num>'
        for number, override in enumerate(nums or ("",), start=1)
    )
    source = (
        f'<w:numbering xmlns:w="{W}"><w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>{lists}</w:numbering>'
    )
    return {"word/numbering.xml": source.encode()}


def styles(*entries: tuple[str, str, str]) -> dict[str, bytes]:
    """Styles of paragraphs by their ids: name, and what else they say."""
    inside = "".join(
        f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/>{more}</w:style>'
        for key, name, more in entries
    )
    return {"word/styles.xml": f'<w:styles xmlns:w="{W}">{inside}</w:styles>'.encode()}


def lines(body: str, **parts: bytes) -> list[str]:
    return [line.strip() for line in parse("a.docx", docx(body, **parts)).text.split("\n") if line.strip()]


CONTRACT = (
    level(0, "decimal", "%1.")
    + level(1, "decimal", "%1.%2")
    + level(2, "lowerLetter", "(%3)")
    + level(3, "lowerRoman", "(%4)")
)


def test_clauses_have_the_numbers_of_all_their_levels():
    body = item("Definitions") + item("Supplier", level=1) + item("Delivery") + item("Goods", level=1)
    body += item("Risk", level=1) + item("late", level=2) + item("in particular", level=2) + item("lorry", level=3)
    body += item("carrier", level=3) + item("customs", level=2) + paragraph("See 2.2(b)(ii).") + item("Payment")
    assert lines(body, **numbering(CONTRACT)) == [
        "1. Definitions", "1.1 Supplier", "2. Delivery", "2.1 Goods", "2.2 Risk", "(a) late", "(b) in particular",
        "(i) lorry", "(ii) carrier", "(c) customs", "See 2.2(b)(ii).", "3. Payment",
    ]  # fmt: skip


LINKED = level(0, "upperRoman", "Article %1", '<w:pStyle w:val="H1"/>') + level(
    1, "decimal", "%1.%2", '<w:pStyle w:val="H2"/><w:isLgl/>'
)


def test_headings_have_the_numbers_of_their_styles(subtests: pytest.Subtests):
    numbered = '<w:pPr><w:numPr>{}<w:numId w:val="1"/></w:numPr></w:pPr>'.format
    body = paragraph("Scope", "H1") + paragraph("Words.") + paragraph("Safety", "H1") + paragraph("Guards", "H2")
    shown = ["Article I Scope", "Words.", "Article II Safety", "2.1 Guards"]
    of_styles = {
        "linked levels": (("H1", "heading 1", numbered("")), ("H2", "heading 2", numbered(""))),
        "levels of styles": (
            ("H1", "heading 1", numbered("")),
            ("H2", "heading 2", '<w:basedOn w:val="H1"/><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr>'),
        ),
        "levels alone": (("H1", "heading 1", ""), ("H2", "heading 2", "")),
    }
    for name, entries in of_styles.items():
        with subtests.test(name):
            parsed = parse("a.docx", docx(body, **numbering(LINKED), **styles(*entries)))
            assert [line for line in parsed.text.split("\n") if line] == shown
            assert [section.title for section in parsed.sections] == [
                "Article I Scope",
                "Article II Safety",
                "2.1 Guards",
            ]


def test_a_heading_that_takes_no_number_has_none():
    off = '<w:p><w:pPr><w:pStyle w:val="H1"/><w:numPr><w:numId w:val="0"/></w:numPr></w:pPr><w:r><w:t>Foreword</w:t></w:r></w:p>'
    empty = level(0, "none", "", '<w:pStyle w:val="H1"/>')
    assert lines(off + paragraph("Scope", "H1"), **numbering(LINKED)) == ["Foreword", "Article I Scope"]
    assert lines(paragraph("References", "H1") + item("a"), **numbering(empty)) == ["References", "a"]


def test_a_number_stands_close_to_the_words_where_nothing_follows_it():
    close = level(0, "chineseCounting", "第%1章", '<w:pStyle w:val="H1"/><w:suff w:val="nothing"/>')
    assert lines(paragraph("总则", "H1"), **numbering(close)) == ["第一章总则"]


KINDS = {
    "decimalZero": ["01", "02", "27"],
    "upperLetter": ["A", "B", "AA"],
    "lowerLetter": ["a", "b", "aa"],
    "upperRoman": ["I", "II", "XXVII"],
    "ordinal": ["1st", "2nd", "27th"],
    "russianLower": ["а", "б", "э"],
    "japaneseCounting": ["一", "二", "二十七"],
    "ideographDigital": ["一", "二", "二七"],
    "decimalEnclosedCircle": ["①", "②", "27"],
    "unheardOf": ["1", "2", "27"],
}


def test_kinds_of_numerals(subtests: pytest.Subtests):
    start = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="27"/></w:lvlOverride>'
    for kind, shown in KINDS.items():
        with subtests.test(kind):
            parts = numbering(level(0, kind, "%1)"), "", start)
            assert lines(item("a") + item("b") + item("c", 2), **parts) == [
                f"{number}) {word}" for number, word in zip(shown, "abc", strict=True)
            ]


def test_a_list_may_replace_levels_of_those_that_it_shares_its_numbers_with():
    other = f'<w:lvlOverride w:ilvl="0">{level(0, "upperLetter", "Part %1:")}</w:lvlOverride>'
    assert lines(item("a") + item("b", 2) + item("c"), **numbering(level(0, "decimal", "%1."), "", other)) == [
        "1. a", "Part B: b", "3. c",
    ]  # fmt: skip


def test_a_level_that_has_no_number_counts_with_its_first():
    assert lines(item("a", level=1) + item("b", level=1), **numbering(CONTRACT)) == ["1.1 a", "1.2 b"]


def test_a_hidden_item_has_no_number_and_counts_not():
    hidden = (
        item("secret")
        .replace("</w:pPr>", "<w:rPr><w:vanish/></w:rPr></w:pPr>")
        .replace("<w:r>", "<w:r><w:rPr><w:vanish/></w:rPr>")
    )
    assert lines(item("a") + hidden + item("b"), **numbering(CONTRACT)) == ["1. a", "2. b"]


def test_items_of_a_list_in_the_main_part_by_another_name_have_numbers():
    main = f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r1" Type="{RELATION}/officeDocument" Target="word/main.xml"/></Relationships>'
    body = f'<w:document xmlns:w="{W}"><w:body>{item("a")}{item("b", level=1)}</w:body></w:document>'
    moved = {"_rels/.rels": main.encode(), "word/main.xml": body.encode()}
    assert lines(paragraph("none"), **moved, **numbering(CONTRACT)) == ["1. a", "1.1 b"]
