"""Files made to harm whatever reads them, each by its name, in sizes that are made in a moment.

`size` scales the ones whose harm grows with them.
"""

import base64
import gzip
import random
import struct
import zlib
from collections.abc import Callable
from functools import partial

from tests.support.made_files import (
    FONT,
    MAIN,
    NAMES,
    RELATION,
    docx,
    epub,
    odf,
    paragraph,
    pdf,
    pdf_of,
    pptx,
    shape,
    sheet_cell,
    sheet_rows,
    xlsx,
    zipped,
)

Made = Callable[[], bytes]
BOMB = '<!DOCTYPE w [<!ENTITY a0 "lol">' + "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
)  # nine levels of ten: a billion


def text(size: int = 1) -> dict[str, Made]:
    noise = random.Random(8).randbytes(100_000)
    marks = "a" + "\u0301\u0323" * 200_000
    return {
        "one line of 10 MB.txt": lambda: b"a" * 10_000_000,
        "one line of words.txt": lambda: b"word " * 1_000_000,
        "spaces.txt": lambda: b"a" + b" " * 1_000_000 * size + b"b",
        "zeros.txt": lambda: b"words\0" * 10_000,
        "utf-16 without mark.txt": lambda: ("words and words " * 10_000).encode("utf-16-le"),
        "utf-16 cut in a character.txt": lambda: b"\xff\xfe" + "words ".encode("utf-16-le")[:-1],
        "utf-32 beyond unicode.txt": lambda: b"\xff\xfe\0\0" + b"a\0\0\0\xff\xff\xff\x7f" * 1_000,
        "surrogates in utf-8.txt": lambda: "wörds ".encode() * 1_000 + b"\xed\xa0\x80",
        "overlong.txt": lambda: b"\xc0\xaf" * 10_000,
        "marks only.txt": lambda: b"\xef\xbb\xbf" * 1_000,
        "backwards.txt": "\u202eabc\u2066def\u2069 \x1b[31m words\x07".encode,
        "invisible tags.txt": lambda: "".join(chr(0xE0020 + n % 90) for n in range(10_000)).encode(),
        "combining marks.txt": marks.encode,
        "hangul.txt": ("\u1100\u1161\u11a8" * 100_000).encode,
        "ligatures.txt": ("\ufdfa" * 100_000).encode,
        "line ends.txt": lambda: b"a\r\r\n\x0b\x0c" * 100_000,
        "underlines.txt": lambda: (b"=" * 200 + b"\n") * 5_000,
        "borders.txt": lambda: b"words\n" + b"+-+-+\n|a|b\n" * 50_000,
        "rules.rst": lambda: b"words\n\n" + b"== ==\na  b\n" * 50_000,
        "base64.txt": lambda: b"words " + base64.b64encode(noise) * 100,
        "mails.mbox": lambda: b"From a Fri Nov 27 17:25:29 2026\nSubject: =?utf-8?q?\n\n\n" * 900,
        "noise.txt": lambda: noise,
        "noise.md": lambda: bytes(b for b in noise if 31 < b < 127),
        "compressed.docx": lambda: gzip.compress(b"words " * 1_000),
    }


def markdown(size: int = 1) -> dict[str, Made]:
    made = {
        "front matter.md": lambda: "---\ntitle: a" + " " * 1_000_000 * size + "b\n---\nwords",
        "front matter open.md": lambda: "---\n" + "title: 'a\n" * 50_000,
        "quotes.md": lambda: ">" * 100_000 + " words",
        "quotes in lines.md": lambda: ("> " * 30 + "words\n") * 3_000,
        "brackets.md": lambda: "# " + "[" * 200_000,
        "pictures.md": lambda: "# " + "![[]()" * 50_000,
        "stars.md": lambda: "# " + "*a **a " * 50_000,
        "backticks.md": lambda: "# " + "".join("a" + "`" * n for n in range(600)),
        "lists in lists.md": lambda: "\n".join("  " * n + "* words" for n in range(500)),
        "list in a line.md": lambda: "* " * 20_000 + "words",
        "headings.md": lambda: "# words\n" * 20_000,
        "fence.md": lambda: "```\n" + "words\n" * 100_000,
        "references.md": lambda: "".join(f"[a{n}]: b '\n" for n in range(10_000)),
        "markup.md": lambda: "<div\n" * 50_000,
        "underlined paragraph.md": lambda: "words\n" * 50_000 + "=====\n",
    }
    return {name: (lambda make=make: make().encode()) for name, make in made.items()}


def html(size: int = 1) -> dict[str, Made]:
    made = {
        "nested.html": lambda: "<div>words" * 100_000,
        "unclosed.html": lambda: "<p><b>words" * 20_000,
        "hidden.html": lambda: "<b hidden></b>xxxx " * 40_000 * size,
        "heading of spaces.html": lambda: "<h1><pre>a" + " " * 1_000_000 * size + "b",
        "headings in headings.html": lambda: "<h1>a<h2>" * 10_000,
        "rows.html": lambda: "<table>" + "<tr><td>a<td>b" * 10_000,
        "cells.html": lambda: "<table><tr>" + "<td>a" * 50_000,
        "spans.html": lambda: "<table>" + "<tr>" + "<td rowspan=99999 colspan=99999>a" * 200 + "<tr><th>b" * 200,
        "tables in tables.html": lambda: "<table><tr><td>words" * 20_000,
        "references.html": lambda: "&amp;amp;lt;script&amp;gt;" * 20_000,
        "attributes.html": lambda: "<p " + "".join(f"a{n}=1 " for n in range(5_000)) + ">words",
        "attribute.html": lambda: f"<p style='{'display ' * 200_000}'>words",
        "comment.html": lambda: "words<!--" * 100_000,
        "deep and wide.html": lambda: "<div>" * 160 + "<p>words<div>a</div>b" * 5_000,
        "styles.html": lambda: "<p style='a:b'>words" * 10_000,
    }
    whole = {name: (lambda make=make: f"<html><body>{make()}".encode()) for name, make in made.items()}
    return whole | {
        "punycode.html": lambda: b"<html><meta charset=punycode>" + b"a" * 100_000 + b"-\xe9",
        "unknown charset.html": lambda: b"<html><meta charset=cp99999>words \xe9",
        "wrong charset.html": lambda: b"<html><meta charset=utf-16>words \xe9",
        "charset of spaces.html": lambda: b"<html>" + b"<meta charset=" * 20 + b" " * 4_000 + b"\xe9",
        "entities.html": f'<?xml version="1.0"?>{BOMB}]><html><body>&a9; words'.encode,
        "body hidden.html": lambda: b"<html>" + b"<body hidden>words" * 10_000,
        "nothing closed.html": lambda: b"<html><body>words" + b"<" * 200_000,
    }


def page(content: bytes, more: bytes = b"", *others: bytes) -> bytes:
    """A PDF of one page; `more` goes into its dictionary, `others` are objects from number 6 on."""
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R %b >>" % more,
            content,
            FONT,
            *others,
        ]
    )


def stream(data: bytes, entries: bytes = b"") -> bytes:
    packed = zlib.compress(data, 9)
    return b"<< /Length %d /Filter /FlateDecode %b >>\nstream\n%b\nendstream" % (len(packed), entries, packed)


WORDS = b"BT /F1 12 Tf 50 700 Td (words) Tj ET "
FONTS = b"/Resources << /Font << /F1 5 0 R >> >>"


def forms(levels: int, calls: int = 10) -> bytes:
    """Form XObjects that call the next one ten times each, the last of which shows a word."""
    objects = []
    for level in range(levels):
        last = level == levels - 1
        inside = FONTS if last else b"/Resources << /XObject << /X %d 0 R >> >>" % (7 + level)
        objects.append(
            stream(WORDS if last else b"/X Do " * calls, b"/Type /XObject /Subtype /Form /BBox [0 0 595 842] " + inside)
        )
    return page(stream(b"/X Do " * calls), b"/Resources << /XObject << /X 6 0 R >> >>", *objects)


def bookmarked(bookmarks: int, lines: int) -> bytes:
    """One page of so many lines of 20 characters, and bookmarks of which none is a whole line of it."""
    return pdf([["Words of a long line"] * lines], [("Words of a longer line", 0)] * bookmarks)


def pages(kids: bytes, count: int) -> bytes:
    return pdf_of(
        [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count %d /Kids [%b] >>" % (count, kids), FONT]
    )


def pdfs() -> dict[str, Made]:
    itself = b"/Resources << /XObject << /X 6 0 R >> /Font << /F1 5 0 R >> >>"
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] " + itself
    whole = pdf([["words"]])
    loop = pdf([["words"]], [("words", 0)] * 2).replace(b"/Next 9 0 R", b"/Next 8 0 R")
    return {
        "forms in forms.pdf": partial(forms, 7),
        "form calls itself.pdf": lambda: page(stream(WORDS + b"/X Do"), itself, stream(WORDS + b"/X Do", form)),
        "page tree calls itself.pdf": lambda: pages(b"2 0 R", 1),
        "two billion pages.pdf": lambda: pages(b"4 0 R", 2_000_000_000),
        "too many pages.pdf": lambda: pages(b"2 0 R " * 20_001, 20_001),
        "huge page.pdf": lambda: page(stream(WORDS), FONTS + b"/Rotate 91").replace(b"595 842", b"1e38 1e38"),
        "no table.pdf": lambda: whole.replace(b"startxref\n", b"startxref\n9"),
        "table of lies.pdf": lambda: whole.replace(b"0 6\n0000000000", b"0 6\n9999999999"),
        "table calls itself.pdf": lambda: _previous_is_itself(whole),
        "cut short.pdf": lambda: whole[: len(whole) // 2],
        "cut short, end mark.pdf": lambda: whole[: len(whole) // 2] + b"%%EOF",
        "encrypted.pdf": lambda: pdf(
            [["words"]], trailer="/Encrypt << /Filter /Standard /V 4 /R 4 /O (a) /U (b) /P 1 >>"
        ),
        "bookmarks in a ring.pdf": lambda: loop,
        "bookmarks.pdf": partial(bookmarked, 500, 2_000),
        "deflated.pdf": lambda: page(stream(b"q Q " * 5_000_000), FONTS),
        "deflated twice.pdf": lambda: page(stream(b"q Q " * 10_000)[:-30], FONTS),
        "brackets.pdf": lambda: page(stream(b"[" * 1_000_000), FONTS),
        "dictionaries.pdf": lambda: page(stream(WORDS), FONTS + b"/A " + b"<< /A " * 50_000 + b">>" * 50_000),
        "open dictionaries.pdf": lambda: page(stream(WORDS), FONTS + b"/A " + b"<< /A " * 50_000),
        "saved states.pdf": lambda: page(stream(b"q " * 500_000 + WORDS), FONTS),
        "zip and pdf.pdf": lambda: whole + docx(paragraph("words")),
        "page is html.pdf": lambda: b"%PDF-1.4 <html><body>words" * 1_000 + b"%%EOF",
        "noise.pdf": lambda: b"%PDF-1.7\n" + random.Random(1).randbytes(200_000) + b"%%EOF",
    }


def _previous_is_itself(body: bytes) -> bytes:
    table = body.index(b"xref\n")
    return body.replace(b"/Info 5 0 R", b"/Info 5 0 R /Prev %d" % table)


def empty_paragraphs(number: int) -> bytes:
    return docx("<w:p/>" * number)


def docxs() -> dict[str, Made]:
    words = paragraph("words")
    return {
        "empty paragraphs.docx": partial(empty_paragraphs, 600_000),
        "no parts.docx": lambda: zipped({"[Content_Types].xml": b"<Types/>", "word/": b""}),
        "no document.docx": lambda: zipped({"[Content_Types].xml": b"<Types/>", "word/styles.xml": b"<a/>"}),
        "entities.docx": lambda: docx("<w:p><w:r><w:t>&a9;</w:t></w:r></w:p>", prolog=BOMB + "]>"),
        "outside entity.docx": lambda: docx(words, prolog='<!DOCTYPE w SYSTEM "http://127.0.0.1:9/x">'),
        "controls in controls.docx": lambda: docx("<w:sdt><w:sdtContent>" * 5_000 + "</w:sdtContent></w:sdt>" * 5_000),
        "tables in tables.docx": lambda: docx("<w:tbl><w:tr><w:tc>" * 500 + words + "</w:tc></w:tr></w:tbl>" * 500),
        "wide table.docx": lambda: docx(
            f'<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="999999999"/></w:tcPr>{words}</w:tc></w:tr></w:tbl>'
        ),
        "fields.docx": lambda: docx(
            "<w:p>" + '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 5_000 + "</w:p>" + words
        ),
        "attributes.docx": lambda: docx("<w:p " + "".join(f"a{n}='1' " for n in range(50_000)) + f"/>{words}"),
        "declared too large.docx": lambda: _declares(docx(words), 2**31),
        "declared too small.docx": lambda: _declares(docx(words), 1),
        "password.docx": lambda: _flagged(docx(words)),
        "many parts.docx": lambda: docx(words, **{f"word/{n}.xml": b"<a/>" for n in range(11_000)}),
        "leaves its folder.docx": lambda: docx(
            words, **{"../../../../etc/passwd": b"root", "word/../../x.xml": b"<a/>"}
        ),
        "cut short.docx": lambda: docx(words)[:-30],
        "relations in a ring.docx": lambda: docx(words, **{"_rels/.rels": _RING}),
        "words before.docx": lambda: b"words " * 1_000 + docx(words),
        "words behind.docx": lambda: docx(words) + b"words " * 20_000,
        "mixed case.docx": lambda: docx(words, **{"word/FOOTNOTES.XML": BOMB.encode() + b"]><a/>"}),
    }


_RING = (
    b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" Type='
    b'"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="_rels/.rels"/>'
    b"</Relationships>"
)


def _declares(body: bytes, size: int) -> bytes:
    """The archive's directory says that every part has so many bytes."""
    return _directory(body, lambda entry: entry[:24] + struct.pack("<I", size) + entry[28:])


def _flagged(body: bytes) -> bytes:
    """The archive's directory says that every part is encrypted."""
    return _directory(body, lambda entry: entry[:8] + b"\x01\x00" + entry[10:])


def _directory(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    first, *entries = body.split(b"PK\x01\x02")
    return first + b"".join(change(b"PK\x01\x02" + entry) for entry in entries)


def tables() -> dict[str, Made]:
    rows = sheet_rows([["Name", "Age"], ["Ann", 30]])
    shared = f'<sst xmlns="{MAIN}"><si><t>{"words " * 5_000}</t></si></sst>'.encode()
    return {
        "quote never closed.csv": lambda: b'a,b\n"c,d\n' + b"e,f\n" * 50_000,
        "quotes.csv": lambda: b'"' * 1_000_001,
        "one cell.csv": lambda: b"a,b\nc,d\n" + b"e" * 1_000_000,
        "delimiters.csv": lambda: b"a" + b"," * 500_000,
        "rows of delimiters.csv": lambda: b"a,b\n1,2\n" + b",,,,\n" * 200_000,
        "long labels.csv": lambda: b",".join(b"%d " % n + b"label " * 50 for n in range(200)) + b"\n1,2\n" * 1_000,
        "wide header.csv": lambda: b",".join(b"%dlabel" % n for n in range(50_000)) + b"\n1,2\n" * 1_000,
        "zeros.csv": lambda: b"a,b\n1,2\0\n" * 10_000,
        "line ends.csv": lambda: b"a,b\r\r\n\x0b" * 10_000,
        "declared delimiter.csv": lambda: b"sep=\n" + b"a\nb" * 1_000,
        "delimiter is a quote.csv": lambda: b'sep="\na"b\n"c""d',
        "far corner.xlsx": lambda: xlsx({"a": sheet_cell("A1", 1) + sheet_cell("XFD1048576", 1)}),
        "far row.xlsx": lambda: xlsx(
            {"a": '<row r="1"><c><v>1</v></c></row><row r="999999999"><c r="B4294967295"><v>1</v></c></row>'}
        ),
        "wrong places.xlsx": lambda: xlsx(
            {"a": sheet_cell("1A", 1) + sheet_cell("", 2) + sheet_cell("A0", 2) + sheet_cell("ZZZZZZZ9", 3)}
        ),
        "many cells.xlsx": lambda: xlsx({"a": "<row>" + "<c><v>1</v></c>" * 40_000 + "</row>"}),
        "one string in many cells.xlsx": lambda: xlsx(
            {"a": "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 10_001))},
            **{"xl/sharedStrings.xml": shared},
        ),
        "string out of range.xlsx": lambda: xlsx({"a": '<row><c t="s"><v>99999999</v></c></row>'}),
        "date out of range.xlsx": lambda: xlsx(
            {"a": '<row><c r="A1" s="1"><v>1e308</v></c><c r="B1" s="9"><v>-1</v></c></row>'}
        ),
        "sheet is a picture.xlsx": lambda: xlsx({"a": rows}, **{"xl/worksheets/sheet1.xml": b"\x89PNG"}),
        "sheet is missing.xlsx": lambda: zipped({"xl/workbook.xml": f'<workbook xmlns="{MAIN}"/>'}),
        "entities.xlsx": lambda: xlsx({"a": rows}, **{"xl/sharedStrings.xml": f"{BOMB}]><sst>&a9;</sst>".encode()}),
        "entities under another name.xlsx": lambda: xlsx({"a": rows}, **{"xl/strings.png": f"{BOMB}]><sst/>".encode()}),
        "nested.xlsx": lambda: xlsx({"a": "<row>" * 50_000}),
        "thousand sheets.xlsx": lambda: xlsx({f"sheet {n}": rows for n in range(1_000)}),
        "declared too large.xlsx": lambda: _declares(xlsx({"a": rows}), 2**31),
        "declared too small.xlsx": lambda: _declares(xlsx({"a": rows}), 1),
        "password.xlsx": lambda: _flagged(xlsx({"a": rows})),
        "cut short.xlsx": lambda: xlsx({"a": rows})[:-30],
        "noise in the middle.xlsx": lambda: _scrambled(xlsx({"a": rows})),
    }


def office() -> dict[str, Made]:
    words = shape("words")
    wide = '<table:table-row table:number-rows-repeated="1048576"><table:table-cell table:number-columns-repeated="16384"><text:p>a</text:p></table:table-cell></table:table-row>'
    return {
        "groups in groups.pptx": lambda: pptx(["<p:grpSp>" * 5_000 + words + "</p:grpSp>" * 5_000]),
        "groups, 200 deep.pptx": lambda: pptx(["<p:grpSp>" * 200 + words + "</p:grpSp>" * 200]),
        "slide that is its own notes.pptx": lambda: pptx([words], {1: _relation("notesSlide", "slide1.xml")}),
        "one slide many times.pptx": lambda: pptx(
            [words],
            **{
                "ppt/presentation.xml": f"<p:presentation {NAMES}><p:sldIdLst>"
                + "<p:sldId r:id='r1'/>" * 30_000
                + "</p:sldIdLst></p:presentation>"
            },
        ),
        "slide outside.pptx": lambda: pptx([words], {1: _relation("notesSlide", "../../../../../etc/passwd")}),
        "no slides.pptx": lambda: pptx([]),
        "entities.pptx": lambda: pptx([words], **{"ppt/slides/slide1.xml": f"{BOMB}]><p>&a9;</p>"}),
        "paragraphs.pptx": lambda: pptx([f"<p:sp>{'<a:p/>' * 500_000}</p:sp>"]),
        "cut short.pptx": lambda: pptx([words])[:-30],
        "slide cut short.pptx": lambda: pptx([words], **{"ppt/slides/slide1.xml": "<p:sld><p:cSld>"}),
        "repeated cells.ods": lambda: odf("spreadsheet", f"<table:table>{wide}</table:table>"),
        "repeated empty rows.ods": lambda: odf(
            "spreadsheet", f"<table:table>{wide.replace('<text:p>a</text:p>', '')}</table:table>" * 100
        ),
        "repeated without end.ods": lambda: odf(
            "spreadsheet", f"<table:table>{wide.replace('1048576', '9' * 5_000)}</table:table>"
        ),
        "tables in tables.odt": lambda: odf(
            "text",
            "<table:table><table:table-row><table:table-cell>" * 80
            + "<text:p>a</text:p>"
            + "</table:table-cell></table:table-row></table:table>" * 80,
        ),
        "sections in sections.odt": lambda: odf("text", "<text:section>" * 10_000 + "</text:section>" * 10_000),
        "spans in spans.odt": lambda: odf(
            "text", "<text:p>" + "<text:span>a" * 240 + "</text:span>" * 240 + "</text:p>"
        ),
        "blanks.odt": lambda: odf("text", '<text:p>a<text:s text:c="2000000000"/>b</text:p>'),
        "entities.odt": lambda: odf("text", "<text:p>&a9;</text:p>", BOMB + "]>"),
        "level.odt": lambda: odf("text", '<text:h text:outline-level="99999999999">a</text:h>'),
        "encrypted.odt": lambda: odf("text", "", **{"META-INF/manifest.xml": "<a><encryption-data/></a>"}),
        "without a manifest.odt": lambda: zipped({"content.xml": "<a/>"}),
        "cut short.odt": lambda: odf("text", "<text:p>words</text:p>")[:-30],
        "one chapter many times.epub": lambda: epub(
            ["<p>words</p>"],
            **{
                "OPS/book.opf": '<package><manifest><item id="c" href="text/c 0.xhtml" media-type="application/xhtml+xml"/></manifest>'
                "<spine>" + "<itemref idref='c'/>" * 20_000 + "</spine></package>"
            },
        ),
        "chapters nested.epub": lambda: epub(["<div>" * 20_000 + "words"]),
        "many chapters.epub": lambda: epub(["<p>words</p>"] * 300, '<a href="text/c%200.xhtml">a</a>' * 20_000),
        "no chapters.epub": lambda: epub([]),
        "chapter outside.epub": lambda: epub(
            ["words"],
            **{
                "OPS/book.opf": '<p><manifest><item id="c" href="../../../etc/passwd" media-type="text/html"/></manifest><spine><itemref idref="c"/></spine></p>'
            },
        ),
        "entities.epub": lambda: epub(["words"], **{"OPS/text/c 0.xhtml": f"{BOMB}]><html>&a9;</html>"}),
        "container is noise.epub": lambda: epub(["words"], **{"META-INF/container.xml": "\0" * 1_000}),
        "cut short.epub": lambda: epub(["words"])[:-30],
        "groups.rtf": lambda: b"{\\rtf1 " + b"{" * 200_000 + b"words",
        "closed groups.rtf": lambda: b"{\\rtf1 words" + b"}" * 200_000,
        "fields.rtf": lambda: b"{\\rtf1 " + b"{\\field{\\*\\fldinst{" * 100 + b'HYPERLINK "a"' * 100,
        "hex.rtf": lambda: b"{\\rtf1 " + b"\\'e9" * 100_000 + b"}",
        "code page.rtf": lambda: b"{\\rtf1\\ansicpg99999\\u-1 \\u9999999999 \\uc words}",
        "wrong code page.rtf": lambda: b"{\\rtf1\\ansicpg932 \\'81\\'ff \\ansicpg65001 \\'ff words}",
        "surrogates.rtf": lambda: b"{\\rtf1 \\u-10179?\\u-8704?\\u-10179? words}",
        "pictures.rtf": lambda: b"{\\rtf1 words " + b"{\\pict\\bin99999999999 " * 1_000,
        "font table.rtf": lambda: b"{\\rtf1{\\fonttbl" + b"{\\f0\\fcharset" * 1_000 + b"}words}",
        "one cell.rtf": lambda: b"{\\rtf1 " + b"a\\cell " * 50_000 + b"\\row words}",
        "noise.rtf": lambda: b"{\\rtf1 " + random.Random(5).randbytes(100_000),
    }


def mails() -> dict[str, Made]:
    def multipart(kind: str, number: int) -> bytes:
        return b"".join(
            b"Content-Type: multipart/%b; boundary=b%d\n\n--b%d\n" % (kind.encode(), n, n) for n in range(number)
        )

    heads = b"Subject: words\nContent-Type: "
    return {
        "parts in parts.eml": lambda: multipart("mixed", 500) + b"\nwords",
        "parts, 15 deep.eml": lambda: multipart("alternative", 15) + b"\nwords",
        "messages in messages.eml": lambda: b"Content-Type: message/rfc822\n\n" * 300 + b"\nwords",
        "part is itself.eml": lambda: heads + b"multipart/mixed; boundary=b\n\n" + b"--b\n" * 50_000,
        "no boundary.eml": lambda: heads + b"multipart/mixed\n\nwords",
        "many attachments.eml": lambda: (
            heads + b"multipart/mixed; boundary=b\n\n" + b"--b\nContent-Disposition: attachment\n\nwords\n" * 1_100
        ),
        "header of words.eml": lambda: b"Subject: " + b"=?utf-8?q?=e9?= " * 5_000 + b"\n\nwords",
        "header without end.eml": lambda: b"Subject: " + b"a" * 1_000_000,
        "headers.eml": lambda: b"To: a\n" * 50_000 + b"\nwords",
        "name in pieces.eml": lambda: (
            heads + b"text/plain; " + b"".join(b"name*%d=a;" % n for n in range(5_000)) + b"\n\nwords"
        ),
        "charset.eml": lambda: heads + b"text/plain; charset=cp99999\n\nwords \xe9",
        "charset in a header.eml": lambda: (
            b"Subject: =?cp99999?b?6Q==?= =?idna?q?a?=\nContent-Type: text/plain\n\nwords"
        ),
        "bad base64.eml": lambda: heads + b"text/plain\nContent-Transfer-Encoding: base64\n\n" + b"=a" * 10_000,
        "uuencoded.eml": lambda: (
            heads + b"text/plain\nContent-Transfer-Encoding: x-uuencode\n\nbegin 666 a\n" + b"M" * 10_000
        ),
        "mail in a mail.eml": lambda: (
            heads
            + b"multipart/mixed; boundary=b\n\n--b\nContent-Type: application/x; name=a.eml\n\nSubject: inner\n\nwords\n--b--"
        ),
        "entities attached.eml": lambda: (
            heads + b"multipart/mixed; boundary=b\n\n--b\nContent-Type: application/x; name=a.docx\n"
            b"Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(docx(paragraph("a"), prolog=BOMB + "]>"))
        ),
        "picture attached.eml": lambda: heads + b"image/png; name=../../a.png\n\n\x89PNG",
        "page.mhtml": lambda: b"<html><body>words",
        "noise.msg": lambda: OLE + random.Random(6).randbytes(5_000) + OUTLOOK,
        "head alone.msg": lambda: OLE + OUTLOOK,
        "chains.msg": lambda: (
            (
                OLE + struct.pack("<16xHHHHH6xIIIIIIIII", 62, 3, 65534, 9, 6, 0, 1, 1, 0, 4096, 1, 1, 0xFFFFFFFE, 0)
            ).ljust(512, b"\0")
            + bytes(2_000)
            + OUTLOOK
        ),
    }


def data() -> dict[str, Made]:
    cell = b'{"cell_type": "code", "source": "%b", "outputs": []}'
    return {
        "nested.json": lambda: b'{"a":' * 100_000,
        "nested and closed.json": lambda: b"[" * 900 + b"1" + b"]" * 900,
        "long keys.json": lambda: b'{"%b":' % (b"k" * 10_000) * 90 + b"[[1],[2]]" + b"}" * 90,
        "long number.json": lambda: b"[" + b"9" * 1_000_000 + b"]",
        "numbers.json": lambda: b"[1e999999999, -0, NaN, Infinity]",
        "many values.json": lambda: b"[" + b"[1]," * 20_000 + b"1]",
        "surrogates.json": lambda: b'{"\\ud800": "\\udfff words"}',
        "equal keys.json": lambda: b"{" + b'"a": "b",' * 50_000 + b'"a": "c"}',
        "cut short.json": lambda: b'{"a": "words',
        "lines.jsonl": lambda: b"1\n" * 20_000,
        "lines of noise.jsonl": lambda: b'{"a": 1}\n{' * 1_000,
        "nested.ipynb": lambda: b'{"cells": ' + b"[" * 100_000,
        "fences.ipynb": lambda: b'{"cells": [' + b",".join([cell % (b"`" * 5_000)] * 20) + b"]}",
        "no cells.ipynb": lambda: b"{}",
        "wrong kinds.ipynb": lambda: b'{"cells": [{"cell_type": 7}]}',
        "nested.xml": lambda: b"<a>" * 100_000,
        "nested, 250 deep.xml": lambda: b"<a>a" * 250 + b"</a>" * 250,
        "entities.xml": f"{BOMB}]><w>&a9;</w>".encode,
        "entity in an attribute.xml": f'{BOMB}]><w a="&a9;"/>'.encode,
        "outside entity.xml": lambda: b'<!DOCTYPE w [<!ENTITY % a SYSTEM "http://127.0.0.1:9/x"> %a;]><w/>',
        "outside type.xml": lambda: b'<!DOCTYPE w SYSTEM "http://127.0.0.1:9/x"><w>&unknown; words</w>',
        "attributes.xml": lambda: b"<w " + b"".join(b"a%d='1' " % n for n in range(5_000)) + b"/>",
        "elements.xml": lambda: b"<w>" + b"<a/>" * 600_000 + b"</w>",
        "includes.xml": lambda: (
            b'<w xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="/etc/passwd" parse="text"/>words</w>'
        ),
        "utf-16.xml": lambda: '<?xml version="1.0" encoding="utf-16"?><w>words</w>'.encode("utf-16"),
        "utf-7.xml": lambda: b'<?xml version="1.0" encoding="utf-7"?><w>words</w>',
        "tables in tables.xml": lambda: b"<table><tr><td>a" * 80 + b"</td></tr></table>" * 80,
        "titles.xml": lambda: b"<w>" + b"<title>a</title>" * 10_000 + b"</w>",
        "adornments.rst": lambda: (b"=" * 200 + b"\n") * 5_000,
        "headings.rst": lambda: b"words\n=====\n" * 5_000,
        "styles of headings.rst": lambda: b"\n".join(b"a\n%b\n" % bytes([n]) for n in range(33, 48)) * 500,
        "one line.rst": lambda: b"a" * 1_000_000 + b"\n" + b"=" * 1_000_000,
        "stars.org": lambda: b"*" * 500_000 + b" words",
        "headings.org": lambda: b"* words :a:\n" * 20_000,
        "tags.org": lambda: b"* words " + b":a" * 100_000,
        "spaces.org": lambda: b"* TODO" + b" " * 200_000 + b"words",
    }


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
OUTLOOK = "__properties_version1.0".encode("utf-16-le")


def _relation(kind: str, target: str) -> str:
    return f'<Relationship Id="x1" Type="{RELATION}/{kind}" Target="{target}"/>'


def _scrambled(body: bytes) -> bytes:
    middle = len(body) // 3
    return body[:middle] + random.Random(3).randbytes(50) + body[middle + 50 :]


def corpus() -> dict[str, Made]:
    """All of them, small."""
    return text() | markdown() | html() | pdfs() | docxs() | tables() | office() | mails() | data()


def twenty() -> dict[str, Made]:
    """One of each kind of harm, at the sizes that an upload may have."""
    words = paragraph("words")
    heads = b"Subject: words\nContent-Type: multipart/mixed; boundary=b\n\n"
    attached = b"--b\nContent-Type: application/x; name=a%d.txt\nContent-Transfer-Encoding: base64\n\n%b\n"
    return {
        "zip bomb, 600 MB.docx": lambda: docx(words + " " * 600_000_000),
        "zip in zip.zip": lambda: zipped({"a.zip": zipped({"b.zip": zipped({"c": bytes(10_000_000)})})}),
        "a billion words by entities.docx": docxs()["entities.docx"],
        "a billion words by entities.xml": f'<?xml version="1.0"?>{BOMB}]><w>&a9;</w>'.encode,
        "10,000 pages.pdf": lambda: pdf([["words"]] * 10_000),
        "20,001 pages.pdf": pdfs()["too many pages.pdf"],
        "page tree calls itself.pdf": pdfs()["page tree calls itself.pdf"],
        "a word 100 million times by forms.pdf": partial(forms, 8),
        "500 MB of drawing.pdf": lambda: page(stream(b"q Q " * 125_000_000), FONTS),
        "nested 1,000,000 deep.json": lambda: b"[" * 1_000_000 + b"]" * 1_000_000,
        "nested 1,000,000 deep.html": lambda: b"<html><body>" + b"<div>words" * 1_000_000,
        "tables, 5,000 deep.docx": lambda: docx(
            "<w:tbl><w:tr><w:tc>" * 5_000 + words + "</w:tc></w:tr></w:tbl>" * 5_000
        ),
        "a million rows.xlsx": lambda: xlsx(
            {"a": "".join(f'<row r="{n}"><c r="A{n}"><v>{n}</v></c></row>' for n in range(1, 1_048_577))}
        ),
        "corner to corner.xlsx": tables()["far corner.xlsx"],
        "one line of 60 MB.txt": lambda: b"a" * 60_000_000,
        "one quote of 60 MB.csv": lambda: b'a,b\n"' + b"c,d\n" * 15_000_000,
        "encrypted.pdf": pdfs()["encrypted.pdf"],
        "encrypted.docx": docxs()["password.docx"],
        "cut short.pdf": lambda: pdf([["words"]] * 1_000)[:-100],
        "cut short.xlsx": lambda: xlsx({"a": sheet_rows([["Name", "Age"], ["Ann", 30]])})[:-30],
        "10,000 attachments.eml": lambda: heads + b"".join(attached % (n, b"d29yZHM=") for n in range(10_000)),
        "1,000 attachments, 60 MB.eml": lambda: (
            heads + b"".join(attached % (n, base64.encodebytes(b"%d" % n * 15_000)) for n in range(1_000))
        ),
        "mail in mail, 1,000 deep.eml": lambda: b"Content-Type: message/rfc822\n\n" * 1_000 + b"\nwords",
        "mail in mail, 100 deep, 60 MB.eml": lambda: (
            b"Content-Type: message/rfc822\n\n" * 100 + b"\n" + b"words " * 10_000_000
        ),
    }
