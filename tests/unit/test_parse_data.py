"""JSON, XML, notebooks, reStructuredText and Org."""

import json

import pytest

from ingest.parse import parse
from ragkv.errors import Rejected


def test_the_elements_of_a_list_are_paragraphs_of_paths_and_values():
    value = [{"name": "Ann", "at": {"city": "Oslo", "zip": None}}, {"name": "Bob", "tags": ["a", "b"], "ok": True}]
    assert (
        parse("a.json", json.dumps(value).encode()).text
        == "name: Ann\nat.city: Oslo\n\nname: Bob\ntags: a, b\nok: true"
    )


def test_json_lines_are_read_like_a_list():
    assert parse("a.jsonl", b'{"a": 1}\n\n{"a": 2}\n').text == "a: 1\n\na: 2"


def test_the_parts_of_an_object_are_paragraphs_and_numbers_stay_as_written():
    body = b'{"version": 1.10, "big": 12345678901234567890123, "paths": {"/a": {"get": "x"}}, "list": [{"k": 1}, [2]]}'
    assert parse("a.json", body).text == (
        "version: 1.10\nbig: 12345678901234567890123\n\npaths./a.get: x\n\nlist[0].k: 1\nlist[1]: 2"
    )


def test_json_with_comments_is_read_as_text():
    assert parse("a.json", b"// words\n{}").media_type == "text/plain"


def test_deep_json_is_refused():
    with pytest.raises(Rejected, match="nested too deeply"):
        parse("a.json", b"[" * 100_000)


def test_a_notebook_is_its_text_code_and_results():
    cells = [
        {"cell_type": "markdown", "source": ["# Plan\n", "words"]},
        {"cell_type": "code", "source": "# not a heading\nprint(1)", "outputs": [
            {"output_type": "stream", "text": ["1\n"]},
            {"output_type": "execute_result", "data": {"text/plain": ["2"], "image/png": "AAAA"}},
            {"output_type": "error", "ename": "ValueError", "evalue": "no"},
        ]},
    ]  # fmt: skip
    parsed = parse("a.ipynb", json.dumps({"cells": cells, "nbformat": 4}).encode())
    assert parsed.title == "Plan"
    assert parsed.text.split("\n\n") == [
        "# Plan\nwords",
        "```\n# not a heading\nprint(1)\n```",
        "```\n1\n```",
        "```\n2\n```",
        "```\nValueError: no\n```",
    ]
    assert [section.title for section in parsed.sections] == ["Plan"]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"data": {"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": "*Result*: 42"}}, "*Result*: 42"),
        ({"data": {"text/plain": ["<IPython.core.display.HTML object>"], "text/html": ["<p>4 <b>up", "</b></p>"]}}, "```\n4 up\n```"),
        ({"data": {"text/plain": "<IPython.core.display.Math object>", "text/latex": "$x^2$"}}, "```\n$x^2$\n```"),
        ({"data": {"text/plain": "Model(7)", "text/html": "<i>Model</i>"}}, "```\nModel(7)\n```"),
        ({"text": "\x1b[31mred\x1b[0m and \x1b[1;32mgreen\x1b[0m"}, "```\nred and green\n```"),
    ],
)  # fmt: skip
def test_results_of_a_notebook_are_the_words_that_are_shown(output: dict[str, object], text: str):
    cells = [{"cell_type": "code", "source": "", "outputs": [output]}]
    assert parse("a.ipynb", json.dumps({"cells": cells, "nbformat": 4}).encode()).text == text


def test_code_in_xml_keeps_its_lines(subtests: pytest.Subtests):
    code = "def f():\n    return 1\n\nf()"
    for source in (
        f"<p>So: <codeblock>{code}</codeblock> works.</p>",
        f"<p>So:</p><programlisting language='python'><![CDATA[\n{code}\n]]></programlisting><p>works.</p>",
        f"<p>So:</p><code>{code.replace('return', '<b>return</b>')}</code><p>works.</p>",
        f"<p>So:</p><source xml:space='preserve'>{code}</source><p>works.</p>",
    ):
        with subtests.test(source):
            assert parse("a.dita", f"<topic>{source}</topic>".encode()).text == f"So:\n\n{code}\n\nworks."


def test_pages_in_the_items_of_a_feed_are_read_as_pages():
    page = "<p>It <b>rains</b> &amp; pours.</p><p style='display:none'>Hidden.</p><ul><li>Bring a coat</li></ul>"
    rss = (
        f"<channel><item><title>Rain</title><description><![CDATA[{page}]]></description><guid>7</guid></item>"
        "<item><title>Sun</title><description>a &lt; b, x &lt;y></description></item></channel>"
    )
    parsed = parse("a.rss", f"<rss>{rss}</rss>".encode())
    assert parsed.text == "Rain\n\nIt rains & pours.\n\n  * Bring a coat\n\nguid: 7\n\nSun\n\na < b, x <y>"
    assert parsed.left_out.hidden_words == 1


def test_what_a_record_says_before_its_title_stands_below_it():
    books = "".join(
        f"<book id='{id_}'><author>{author}</author><title>{title}</title><price>{price}</price></book>"
        for id_, author, title, price in (("b1", "Ann", "Rivers", 8), ("b2", "Bob", "Roads", 9))
    )
    parsed = parse("a.xml", f"<catalog>{books}</catalog>".encode())
    assert parsed.text.split("\n\n") == [
        "Rivers",
        "book: id=b1\nauthor: Ann\nprice: 8",
        "Roads",
        "book: id=b2\nauthor: Bob\nprice: 9",
    ]


def test_xml_is_read_as_running_text_titles_tables_and_lines():
    body = b"""<?xml version="1.0" encoding="iso-8859-1"?><!DOCTYPE article SYSTEM "article.dtd"><article id="7"><title>Ducks</title>
      <info><author>Zo\xeb</author><year>2024</year></info>
      <sec><title>Places</title><p>In <i>Oslo</i> and Rome.</p>
        <table><tr><th>City</th><th>Ducks</th></tr><tr><td>Oslo</td><td>7</td></tr></table></sec></article>"""
    parsed = parse("a.xml", body)
    assert parsed.title == "Ducks"
    assert parsed.text.split("\n\n") == [
        "Ducks", "article: id=7", "author: Zoë\nyear: 2024", "Places", "In Oslo and Rome.", "City | Ducks", "City: Oslo | Ducks: 7",
    ]  # fmt: skip
    assert [(section.title, section.level) for section in parsed.sections] == [("Ducks", 1), ("Places", 2)]


def blocks_of(xml: str) -> list[str]:
    return parse("a.xml", f"<d><p>x</p>{xml}</d>".encode()).text.split("\n\n")[1:]


def test_cells_of_xml_that_span_rows_and_columns_keep_the_labels_in_their_columns():
    """As JATS and CALS tables (DITA, DocBook) write them."""
    jats = (
        "<table><thead><tr><th>Group</th><th>N</th><th>Value</th></tr></thead><tr><td rowspan='2'>Control</td>"
        "<td>12</td><td>0.5</td></tr><tr><td>13</td><td>0.7</td></tr></table>"
    )
    assert blocks_of(jats)[1:] == ["Group: Control | N: 12 | Value: 0.5", "Group: Control | N: 13 | Value: 0.7"]
    cals = (
        "<table><title>Sales</title><desc>In millions.</desc><tgroup><colspec colname='a'/><colspec colname='b'/>"
        "<colspec colname='c'/><thead><row><entry morerows='1'>City</entry><entry namest='b' nameend='c'>2023</entry></row>"
        "<row><entry>Plan</entry><entry>Actual</entry></row></thead><tbody><row><entry>Oslo</entry>"
        "<entry colname='c'>7</entry></row></tbody></tgroup></table>"
    )
    assert blocks_of(cals) == ["Sales", "In millions.", "City | 2023 Plan | 2023 Actual", "City: Oslo | 2023 Actual: 7"]


def test_groups_of_a_table_of_xml_have_headers_of_their_own():
    groups = (
        f"<tgroup><thead><row><entry>{a}</entry><entry>{b}</entry></row></thead>"
        f"<tbody><row><entry>{c}</entry><entry>{d}</entry></row></tbody></tgroup>"
        for a, b, c, d in (("Name", "City", "Ann", "Oslo"), ("Item", "Colour", "Bolt", "red"))
    )
    assert blocks_of(f"<table>{''.join(groups)}</table>") == [
        "Name | City", "Name: Ann | City: Oslo", "Item | Colour", "Item: Bolt | Colour: red",
    ]  # fmt: skip


def test_blocks_breaks_and_inner_tables_of_xml_are_apart_in_a_cell_and_a_title():
    inner = "<table><tr><td>i</td><td>j</td></tr></table>"
    cells = f"<td>10<break/>20</td><td><p>First.</p><p>Second.</p></td><td>{inner}</td>"
    assert blocks_of(f"<title>Dose<break/>response</title><table><tr>{cells}</tr></table>") == [
        "Dose response", "10 20 | First. Second. | i j",
    ]  # fmt: skip


def test_a_formula_of_xml_stays_in_its_sentence_beside_blocks():
    formula = "<m:math><m:mi>x</m:mi><m:mo>=</m:mo><m:mn>2</m:mn></m:math>"
    body = f"<p xmlns:m='http://www.w3.org/1998/Math/MathML'>Let <f>{formula}</f> be.<list><li>One.</li></list></p>"

    assert parse("a.xml", body.encode()).text.split("\n\n") == ["Let x=2 be.", "One."]


def test_inline_markup_of_xml_stays_in_its_sentence_beside_blocks():
    """As JATS and DocBook write tables and lists within a paragraph."""
    table = "<table-wrap><table><tr><td>Oslo</td><td>7</td></tr></table></table-wrap>"
    jats = f"<p>In <b>Oslo</b>, see <xref rid='t1'>Table 1</xref>:{table} which <i>is</i> all.</p><p>End.</p>"
    items = "<listitem><para>one <emphasis>duck</emphasis></para></listitem><listitem><para>two</para></listitem>"
    docbook = (
        f"<para id='a'>Some <emphasis>ducks</emphasis>: <list>{items}</list> and <emphasis>geese</emphasis>.</para>"
    )
    assert parse("a.xml", f"<article><sec><title>Places</title>{jats}</sec>{docbook}</article>".encode()).text.split(
        "\n\n"
    ) == [
        "Places", "In Oslo, see Table 1:", "Oslo | 7", "which is all.", "End.",
        "para: id=a", "Some ducks:", "one duck", "two", "and geese.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inside", "blocks"),
    [
        ("Intro: <ul><li>One thing.</li><li>Two things.</li></ul>", ["Intro:", "One thing.", "Two things."]),
        ("Intro: <item>One <b>thing</b>.</item> and <b>more</b>", ["Intro:", "One thing.", "and more"]),
        ("Some <list><description>thing</description></list>", ["Some", "thing"]),
        (
            "Text <record><name>Ann</name><age>5</age></record><record> <name>Bob</name> <age>6</age> </record>",
            ["Text", "name: Ann\nage: 5", "name: Bob\nage: 6"],
        ),
        ("<img alt='A cat' src='x'/>text", ["img: alt=A cat, src=x", "text"]),
        ("<figure><img alt='A cat'/></figure>text<br/> and on", ["img: alt=A cat", "text and on"]),
        ("In <b>Oslo, <i>a</i> and <i>b</i></b><sup>1</sup> <i>c</i>", ["In Oslo, a and b1 c"]),
    ],
)
def test_lists_records_and_attributes_of_xml_are_no_inline_markup(inside: str, blocks: list[str]):
    assert parse("a.xml", f"<d>{inside}<p>x</p></d>".encode()).text.split("\n\n") == [*blocks, "x"]


@pytest.mark.parametrize(
    ("inside", "blocks"),
    [
        (
            "<item id='1' price='5.00'>Bolt</item><item id='2' price='7.50'/>",
            ["item: id=1, price=5.00, Bolt", "item: id=2, price=7.50"],
        ),
        ("<text n='1'>One</text><li n='2'>Two</li>", ["text: n=1, One", "li: n=2, Two"]),
        ("<line price='9'>Nut <b>big</b></line>", ["line: price=9, Nut big"]),
        (
            "<p id='a'>Total <amount currency='EUR' value='12'/> due</p>",
            ["Total amount: currency=EUR, value=12 due"],
        ),
        (
            "<table><tr><td align='left'><amount value='12'/></td><td align='left'/><td>7</td></tr></table>",
            ["amount: value=12 | 7"],
        ),
        ("<title>Ducks<xref rid='f1'/></title><p>Wa<lb n='2'/>ter<br clear='all'/></p>", ["Ducks", "Water"]),
    ],
)
def test_attributes_of_xml_stand_before_words_and_in_place_of_empty_elements(inside: str, blocks: list[str]):
    assert blocks_of(inside) == blocks


def test_superscripts_and_formulas_of_xml_do_not_merge_with_numbers():
    """As JATS, DocBook and MathML write them."""
    half = (
        "<m:math xmlns:m='http://www.w3.org/1998/Math/MathML'><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math>"
    )
    body = f"<d><p>10<sup>9</sup>, 45<xref><superscript>1</superscript></xref> and {half}</p><p>m<sup>2</sup></p></d>"
    assert parse("a.xml", body.encode()).text == "10^9, 45^1 and 1/2\n\nm2"


def test_text_of_xml_that_looks_like_an_entity_stays_as_written():
    body = b"<d><p>Write <code>&amp;nbsp;</code> for a blank and <code>&amp;lt;</code> for less.</p></d>"
    assert parse("a.xml", body).text == "Write &nbsp; for a blank and &lt; for less."


def test_entities_that_a_vocabulary_declares_are_those_of_html():
    """A definition is not fetched; what stands after an entity is not lost with it."""
    body = b'<!DOCTYPE article SYSTEM "a.dtd"><article><p>caf&eacute; &mdash; a<p>b &x; c</p> d&mdash;e</p></article>'
    assert parse("a.xml", body).text == "café — a\n\nb &x; c\n\nd—e"


def test_xml_with_entities_of_its_own_is_refused_and_broken_xml_too():
    with pytest.raises(Rejected, match="entities"):
        parse("a.xml", b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>')
    with pytest.raises(Rejected, match="not well-formed"):
        parse("a.xml", b"<a><b></a>")


def test_headings_of_restructuredtext_rank_by_their_first_use():
    body = b"=====\nGuide\n=====\n\nwords\n\nPart ``one``\n============\n\nDeep\n----\n\na\n\nPart two\n========\n\n===  ===\na    b\n===  ===\n"
    parsed = parse("a.rst", body)
    assert parsed.title == "Guide"
    assert [(section.title, section.level) for section in parsed.sections] == [
        ("Guide", 1), ("Part one", 2), ("Deep", 3), ("Part two", 2),
    ]  # fmt: skip
    assert parsed.text.startswith("=====\nGuide") and parsed.sections[0].start == 0


def test_headings_of_org_lose_their_keywords_and_tags():
    parsed = parse("a.org", b"#+TITLE: Notes\n* TODO [#A] First   :work:home:\nwords\n** Second\n,* no\n")
    assert parsed.title == "Notes"
    assert [(section.title, section.level) for section in parsed.sections] == [("First", 1), ("Second", 2)]
