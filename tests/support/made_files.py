"""Files of formats that are not text, written byte by byte."""

import io
import struct
import zipfile

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def pdf(pages: list[list[str]], bookmarks: list[tuple[str, int]] = [], info: str = "", trailer: str = "") -> bytes:  # noqa: B006
    """Pages as lines of text; bookmarks as title and page index."""
    kids = " ".join(f"{6 + 2 * n} 0 R" for n in range(len(pages)))
    first_mark = 6 + 2 * len(pages)
    outline = f"/First {first_mark} 0 R /Last {first_mark + len(bookmarks) - 1} 0 R" if bookmarks else ""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /Outlines 4 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        FONT,
        f"<< /Type /Outlines {outline} >>".encode(),
        f"<< {info} >>".encode(),
    ]
    for number, lines in enumerate(pages):
        shown = "".join(f"1 0 0 1 50 {780 - 20 * n} Tm ({line}) Tj\n" for n, line in enumerate(lines))
        content = f"BT /F1 12 Tf {shown} ET".encode("cp1252")
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {7 + 2 * number} 0 R >>".encode(),
            b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
        ]
    for n, (title, page) in enumerate(bookmarks):
        following = f"/Next {first_mark + n + 1} 0 R" if n + 1 < len(bookmarks) else ""
        objects.append(f"<< /Title ({title}) /Parent 4 0 R /Dest [{6 + 2 * page} 0 R /Fit] {following} >>".encode())
    return pdf_of(objects, trailer)


def pdf_of(objects: list[bytes], trailer: str = "") -> bytes:
    """Objects, numbered from 1, the first of them the catalog."""
    body, offsets = b"%PDF-1.5\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R {trailer} >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + b"xref\n0 %d\n0000000000 65535 f \n%b%b" % (len(objects) + 1, table, end.encode())


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STYLES = "".join(
    f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
    for key, name in [("Title", "Title"), ("H1", "heading 1"), ("H2", "heading 2")]
)
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
RELATIONS = (
    f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>'
)


def paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str, prolog: str = "", **more: bytes) -> bytes:
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "word/document.xml": f'{prolog}<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{W}">{STYLES}</w:styles>',
        "word/_rels/document.xml.rels": RELATIONS,
        **more,
    }
    return zipped(parts)


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def xlsx(sheets: dict[str, str], states: dict[str, str] = {}, **more: bytes) -> bytes:  # noqa: B006
    """Sheets by name, each as its rows in XML; `states` says which are hidden."""
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}" state="{states.get(name, "visible")}"/>'
        for n, name in enumerate(sheets, start=1)
    )
    relations = "".join(
        f'<Relationship Id="r{n}" Type="{RELATION}/worksheet" Target="worksheets/sheet{n}.xml"/>'
        for n in range(1, len(sheets) + 1)
    )
    return zipped(
        {
            "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
            "_rels/.rels": relations_to("xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATION}"><sheets>{listed}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">{relations}</Relationships>',
            "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
            **{
                f"xl/worksheets/sheet{n}.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
                for n, rows in enumerate(sheets.values(), start=1)
            },
            **more,
        }
    )


def relations_to(main: str) -> str:
    one = f'<Relationship Id="r1" Type="{RELATION}/officeDocument" Target="{main}"/>'
    return f'<Relationships xmlns="{PACKAGE}">{one}</Relationships>'


def sheet_rows(rows: list[list[object]]) -> str:
    """Rows of a sheet: strings and numbers, None for no cell."""
    return "".join(
        f'<row r="{number}">'
        + "".join(sheet_cell(f"{chr(65 + n)}{number}", value) for n, value in enumerate(row) if value is not None)
        + "</row>"
        for number, row in enumerate(rows, start=1)
    )


def sheet_cell(place: str, value: object) -> str:
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{place}"><v>{value}</v></c>'


def zipped(parts: dict[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
NAMES = f'xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{RELATION}"'


def pptx(slides: list[str], relations: dict[int, str] = {}, **more: bytes | str) -> bytes:  # noqa: B006
    """Slides as their shapes in XML; `relations` of a slide by its number."""
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="r{n}"/>' for n in range(1, len(slides) + 1))
    listed = "".join(
        f'<Relationship Id="r{n}" Type="{RELATION}/slide" Target="slides/slide{n}.xml"/>'
        for n in range(1, len(slides) + 1)
    )
    return zipped(
        {
            "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
            "ppt/presentation.xml": f"<p:presentation {NAMES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": f'<Relationships xmlns="{PACKAGE}">{listed}</Relationships>',
            **{f"ppt/slides/slide{n}.xml": slide(shapes) for n, shapes in enumerate(slides, start=1)},
            **{
                f"ppt/slides/_rels/slide{n}.xml.rels": f'<Relationships xmlns="{PACKAGE}">{found}</Relationships>'
                for n, found in relations.items()
            },
            **more,
        }
    )


def slide(shapes: str, kind: str = "sld") -> str:
    return f"<p:{kind} {NAMES}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:{kind}>"


def shape(text: str, placeholder: str = "") -> str:
    kind = f'<p:ph type="{placeholder}"/>' if placeholder else ""
    return f"<p:sp><p:nvSpPr><p:nvPr>{kind}</p:nvPr></p:nvSpPr><p:txBody>{runs(text)}</p:txBody></p:sp>"


def runs(text: str) -> str:
    return "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in text.split("\n"))


ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name if name != "draw" else "drawing"}:1.0"'
    for name in ("office", "text", "table", "draw", "presentation")
)


def odf(kind: str, content: str, prolog: str = "", **more: bytes | str) -> bytes:
    """A file of a kind: text, spreadsheet or presentation."""
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": "<manifest/>",
            "content.xml": f"{prolog}<office:document-content {ODF}><office:body><office:{kind}>{content}"
            f"</office:{kind}></office:body></office:document-content>",
            **more,
        }
    )


def epub(chapters: list[str], contents: str = "", **more: bytes | str) -> bytes:
    """Chapters as the bodies of pages, and entries of the table of contents as links."""
    items = "".join(
        f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    doctype = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">'
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>',
            "OPS/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>A book</dc:title>'
            f'</metadata><manifest><item id="nav" href="nav.xhtml" properties="nav"/>{items}</manifest><spine>{spine}</spine></package>',
            "OPS/nav.xhtml": f"<html><body><nav>{contents}</nav></body></html>",
            **{
                f"OPS/text/c {n}.xhtml": f'{doctype}<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
                f"<body>{chapter}</body></html>"
                for n, chapter in enumerate(chapters)
            },
            **more,
        }
    )


Storage = dict[str, "bytes | Storage"]


def ole(root: Storage) -> bytes:
    """An OLE file. Streams have 4,096 bytes at least, as shorter ones would have to lie elsewhere."""
    entries: list[bytes] = []
    streams: list[bytes] = []
    size = _entries_in(root) + 1
    first_stream = 1 + -(-size * 128 // 512)  # behind the table of sectors and the entries

    def add(name: str, inside: "bytes | Storage", right: int) -> int:
        number = len(entries)
        entries.append(b"")
        child, start = 0xFFFFFFFF, 0
        if isinstance(inside, bytes):
            kind, start = 2, first_stream + sum(len(stream) for stream in streams) // 512
            streams.append(inside.ljust(-(-len(inside) // 512) * 512, b"\0"))
        else:
            kind = 1 if number else 5
            for one, what in inside.items():
                child = add(one, what, child)
        words, num_bytes = name.encode("utf-16-le"), len(inside) if isinstance(inside, bytes) else 0
        entries[number] = struct.pack(
            "<64sHBBIII36sIQ", words, len(words) + 2, kind, 1, 0xFFFFFFFF, right, child, b"", start, num_bytes
        )
        return number

    add("Root Entry", root, 0xFFFFFFFF)
    lengths = [first_stream - 1, *(len(stream) // 512 for stream in streams)]
    chains = [0xFFFFFFFD]
    for length in lengths:
        chains += [*range(len(chains) + 1, len(chains) + length), 0xFFFFFFFE]
    assert len(chains) <= 128, "one sector holds the table"
    head = struct.pack(
        "<8s16sHHHHH6xIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"", 62, 3, 65534, 9, 6, 0, 1, 1, 0, 4096,
        0xFFFFFFFE, 0, 0xFFFFFFFE, 0,
    ) + struct.pack("<109I", 0, *[0xFFFFFFFF] * 108)  # fmt: skip
    table = struct.pack("<128I", *chains, *[0xFFFFFFFF] * (128 - len(chains)))
    return head + table + b"".join(entries).ljust((first_stream - 1) * 512, b"\0") + b"".join(streams)


def _entries_in(storage: Storage) -> int:
    return sum(1 + (0 if isinstance(inside, bytes) else _entries_in(inside)) for inside in storage.values())
