"""Parsers and splitting take time in proportion to the file, whatever is in it."""

import math
from functools import partial

import pytest

from ingest.parse import Parsed, parse
from ingest.parse.parsed import Page
from ingest.parse.pdf import Bookmark, sections_of_outline
from tests.support.growth import assert_linear, read_or_refuse
from tests.support.made_files import MAIN, W, docx, epub, odf, paragraph, pptx, shape, sheet_rows, xlsx


def page(body: str) -> bytes:
    return f"<html><body>{body}</body></html>".encode()


FILES = {
    "front matter": ("a.md", 20_000, lambda n: b"---\ntitle: a" + b" " * n + b"b\n---\nwords"),
    "folded title": ("a.md", 20_000, lambda n: b"---\ntitle: >-\n" + b" a\n" * n + b"---\nwords"),
    "open front matter": ("a.md", 100, lambda n: b"---\n" + b"title: 'a\n" * n),
    "brackets": ("a.md", 20_000, lambda n: b"# " + b"[" * n + b"\n\nwords"),
    "backticks": ("a.md", 10_000, lambda n: b"# " + b"".join(b"a" + b"`" * i for i in range(math.isqrt(n)))),
    "quotes": ("a.md", 20_000, lambda n: b">" * n + b"a"),
    "headings": ("a.md", 200, lambda n: b"# *words*\n" * n),
    "heading of spaces": ("a.html", 20_000, lambda n: page("<h1><pre>a" + " " * n + "b")),
    "hidden": ("a.html", 1_000, lambda n: page("<b hidden></b>xxxx " * n)),
    "inline": ("a.html", 500, lambda n: page("<b>a</b> <i>b</i>" * n)),
    "cells": ("a.html", 500, lambda n: page("<table><tr>" + "<td>a" * n)),
    "rows": ("a.html", 200, lambda n: page("<table><tr><th>a<th>b" + "<tr><td rowspan=2>c<td>d" * n)),
    "csv": ("a.csv", 500, lambda n: b"a,b\n" + b'1,"2"\n\n' * n),
    "quotes of csv": ("a.csv", 2_000, lambda n: b'a,b\n"1"2",' * n),
    "sheet": ("a.xlsx", 200, lambda n: xlsx({"a": sheet_rows([["a", "b"], *[[1, 2]] * n])})),
    "merged cells": (
        "a.xlsx",
        200,
        lambda n: xlsx(
            {"a": ""},
            **{
                "xl/worksheets/sheet1.xml": (
                    f'<worksheet xmlns="{MAIN}"><cols><col min="5" max="16384" hidden="1"/></cols><sheetData>'
                    f"{sheet_rows([[1, 2, 3, 4, 5]] * n)}</sheetData><mergeCells>"
                    + "".join(f'<mergeCell ref="A{row}:D1048576"/>' for row in range(1, n + 1))
                    + "</mergeCells></worksheet>"
                ).encode()
            },
        ),
    ),
    "spans of text": (
        "a.odt",
        200,
        lambda n: odf(
            "text",
            "<text:p>" + '<text:span text:style-name="a">1<text:span>2</text:span></text:span>' * n + "</text:p>",
        ),
    ),
    "slides": ("a.pptx", 30, lambda n: pptx([shape("a"), shape("b")] * n)),
    "cells of slides": (
        "a.pptx",
        30,
        lambda n: pptx(
            ["<a:tbl>" + "<a:tr>" + "<a:tc rowSpan='900' gridSpan='900'/><a:tc/>" * 9 * n + "</a:tr><a:tr/></a:tbl>"]
            + [shape(f"a{i}", "ftr") + "<p:grpSp>" * 50 + shape("b") + "</p:grpSp>" * 50 for i in range(n)]
        ),
    ),
    "paragraphs": ("a.odt", 200, lambda n: odf("text", "<text:p>a</text:p><text:h>b</text:h>" * n)),
    "chapters": ("a.epub", 20, lambda n: epub(["<p>a</p>"] * n, '<a href="text/c%200.xhtml">b</a>' * n)),
    "json": ("a.json", 300, lambda n: b"[" + b'{"a": [1, {"b": 2}]},' * n + b"1]"),
    "xml": ("a.xml", 300, lambda n: b"<w>" + b"<a b='1'>c</a><sec><title>d</title></sec>" * n + b"</w>"),
    "rst": ("a.rst", 300, lambda n: b"=====\nwords\n=====\n\na\n" * n),
    "rtf": ("a.rtf", 300, lambda n: b"{\\rtf1 " + b"a\\par b\\cell\\row " * n + b"}"),
    "attachments": (
        "a.eml",
        30,
        lambda n: (
            b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\nContent-Type: a/b; name=a.txt\n\nwords\n" * n
        ),
    ),
    "alternatives": (
        "a.eml",
        30,
        lambda n: (
            b"Subject: w\xf6rds\nContent-Type: multipart/alternative; boundary=b\n\n"
            + b"--b\nContent-Type: text/html; name=\xf6\n\n<b>\n--b\nContent-Type: text/html\n\n<p>words\n" * n
        ),
    ),
    "events": (
        "a.eml",
        200,
        lambda n: (
            b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\n%b\n--b\nContent-Type: text/calendar\n\n"
            % (b"words " * n)
            + b'BEGIN:VEVENT\nSUMMARY;A="b;c";D="e:a\n f\nDESCRIPTION:words\n  wor\nEND:VEVENT\n' * n
        ),
    ),
    "words around cells": ("a.html", 300, lambda n: page("<table><tr>" + "a<form><td>b</td></form><b>c</b>" * n)),
    "words beside blocks": ("a.xml", 300, lambda n: b"<p>" + b"a <b>c</b> d <p>e</p>" * n + b"</p>"),
    "text boxes": ("a.odt", 200, lambda n: odf("text", "<text:p>" + "a<text:p>b</text:p>" * n + "</text:p>")),
    "equations": ("a.docx", 100, lambda n: docx("<w:p><oMath><f><num><r><t>1</t></r></num></f></oMath></w:p>" * n)),
    "one equation": (
        "a.docx",
        100,
        lambda n: docx("<w:p><oMath>" + "<sup><t>1</t><t>2</t></sup>" * n + "</oMath></w:p>"),
    ),
    "headings without text": ("a.org", 100, lambda n: b"* a\n** b\n*** c\n" * n),
    "deep and wide": ("a.html", 500, lambda n: page("<div>" * 160 + "<p>a<div>b</div>c" * n)),
    "charset": ("a.html", 50, lambda n: b"<html><meta charset=" + b" " * n + b">words \xe9"),
    "punycode": ("a.html", 20_000, lambda n: b"<html><meta charset=punycode>" + b"a" * n + b"-\xe9"),
    "empty paragraphs": ("a.docx", 200, lambda n: docx("<w:p/>" * n + paragraph("a"))),
    "wide spans": (
        "a.html",
        500,
        lambda n: page("<table><tr>" + "<td rowspan=3>a" * n + "<tr><td>b<tr><th>c<tr><th>d"),
    ),
    "rows of xml": (
        "a.xml",
        100,
        lambda n: b"<table><thead>" + b"<tr><td rowspan='2'>a</td><td>b</td></tr>" * n + b"</thead></table>",
    ),
    "raised": ("a.html", 500, lambda n: page("1<sup>2</sup>" * n + "<math><mfrac><mn>1<mn>2</mfrac></math>" * n)),
    "raised in rtf": ("a.rtf", 300, lambda n: b"{\\rtf1 " + b"1{\\super 2}" * n + b"{" * n + b"}" * n + b"}"),
    "notes of rtf": (
        "a.rtf",
        200,
        lambda n: (
            b"{\\rtf1 " + b"a{\\footnote b}{\\header c\\par}{\\v d}{\\strike e}{\\shptxt f}\\cellx9\\cell\\row" * n
        ),
    ),
    "numbers of word": (
        "a.docx",
        100,
        lambda n: docx(
            (
                "<w:p><w:pPr><w:numPr><w:ilvl w:val='1'/><w:numId w:val='1'/></w:numPr></w:pPr>"
                "<w:r><w:rPr><w:vanish/><w:rStyle w:val='a'/></w:rPr><w:t>a</w:t></w:r><w:r><w:drawing/><w:t>b</w:t></w:r></w:p>"
            )
            * n,
            **{
                "word/numbering.xml": (
                    f"<w:numbering xmlns:w='{W}'><w:abstractNum w:abstractNumId='1'>"
                    + "<w:lvl w:ilvl='1'><w:lvlText w:val='%1.%2'/></w:lvl>" * n
                    + "</w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='1'/></w:num></w:numbering>"
                ).encode()
            },
        ),
    ),
    "items": (
        "a.html",
        500,
        lambda n: page("<ol start=2>" + "<li>a" * n + "<summary><button>b</button></summary>" * n),
    ),
    "rules of styles": (
        "a.html",
        200,
        lambda n: page(
            f"<style>{'.a{left:0}' * n}{'.b .a{display:block}' * n}{'i,' * n}i{{{'opacity:0;' * n}left:{'0' * n}}}{'{' * n}{'/*' * n}*/{'}' * n}"
            f"@media{' ' * n}x{{{'a{left:0}' * n}}}</style>" + "<p class='a b'><s>c</s>" * n
        ),
    ),
    "classes": (
        "a.html",
        500,
        lambda n: page(
            f"<style>{''.join(f'.c{i}' + '{display:none}' for i in range(n))}.c0{':not(a)' * n}{{top:0}}</style>"
            f"<p class='{' '.join(f'c{i}' for i in range(n))}'>a</p><p>b"
        ),
    ),
    "nested and struck": (
        "a.html",
        500,
        lambda n: page("x<del>a <i style='font-size:0'>b</i>" * 100 + "<s>c</s> d" * n),
    ),
    "hidden in hidden": (
        "a.html",
        2,
        lambda n: page("x" + "<b hidden>a" * 100 * n + "<b style='opacity:0'></b>c" * 100 * n),
    ),
    "controls": (
        "a.html",
        300,
        lambda n: page(
            f"<label id=b>{' ' * n}{'<input type=checkbox>' * n}</label>"
            + "<input type=radio id=a><label for=a>b</label><select><option selected>c</select><input value=d>" * n
        ),
    ),
    "descriptions": ("a.html", 2_000, lambda n: page(f"<img alt='{' ' * n}a{' ' * n}'>" + "<img alt='b c'>" * 20)),
    "one line": ("a.txt", 50_000, lambda n: b"a" + b" " * n + b"b"),
    "almost a rule": ("a.txt", 2_000, lambda n: b"|a|b|\n" + b" " * n + b"x-|"),
    "almost a rule of Org": ("a.org", 2_000, lambda n: b"|-" + b" " * n + b"x|"),
    "underlines": ("a.txt", 200, lambda n: (b"=" * 200 + b"\n") * n + b"a"),
    "marks": ("a.txt", 2_000, lambda n: ("a" + "\u0301\u0323" * n).encode()),
}


def test_a_larger_file_takes_longer_in_proportion(subtests: pytest.Subtests):
    for kind, (name, size, make) in FILES.items():
        with subtests.test(kind):
            assert_linear(partial(read_or_refuse, name), make, size)


@pytest.mark.parametrize("title", ["Words of a longer line", "a a a", "1 2 3"])
def test_bookmarks_and_their_page_grow_together_in_proportion(title: str):
    """Twice as many bookmarks over a page twice as long: twice the time, not four times."""

    def sections(size: int) -> tuple:
        text = "\n".join(["1.2 Words of a long line", "a", "a a"] * size)
        marks = [Bookmark(f"{title}{n}" if n % 2 else title, 1, 0) for n in range(size)]
        return sections_of_outline(text, (Page(1, 0, len(text)),), marks)

    assert_linear(sections, lambda size: size, 100)


def test_a_title_is_found_on_lines_of_its_own_numbered_or_broken():
    text = "Contents 3\n2.1 The long\ntitle  of it\nThe long title of it here\n\nThe long title of it\nx"
    marks = [Bookmark("The long title of it", 1, 0), Bookmark("The long title of it", 2, 0), Bookmark("x", 1, 7)]
    found = sections_of_outline(text, (Page(1, 0, len(text)),), marks)

    assert [text[s.start : s.body] for s in found] == ["2.1 The long\ntitle  of it", "The long title of it"]


def test_headings_end_with_the_text():
    parsed: Parsed = parse("a.md", b"# a\n\n# b")
    assert [(s.start, s.body) for s in parsed.sections] == [(0, 4), (5, 8)]


@pytest.mark.parametrize("line", ["title: Plan", "title: 'Plan'", 'title:   "Plan"  ', "title:\tPlan"])
def test_the_front_matter_s_title_stands_with_and_without_quotes(line: str):
    assert parse("a.md", f"---\nx: 1\n{line}\n---\nwords".encode()).title == "Plan"


@pytest.mark.parametrize("sign", [">-", ">", "|", "|2+", "> # folded"])
def test_the_front_matter_s_title_may_stand_on_indented_lines_below(sign: str):
    assert parse("a.md", f"---\ntitle: {sign}\n  A long\n\n  Plan\nx: 1\n---\nwords".encode()).title == "A long Plan"
    assert parse("a.md", f"---\ntitle: {sign}\nx: 1\n---\n# Words".encode()).title == "Words"
