"""PDF: pages, bookmarks, and files that are no longer whole. The files are written here, byte by byte."""

import threading

import pytest

from ingest.parse import Parsed, parse
from ragkv.errors import Rejected

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
    return _with_xref(objects, trailer)


def _with_xref(objects: list[bytes], trailer: str) -> bytes:
    body, offsets = b"%PDF-1.5\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R {trailer} >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + b"xref\n0 %d\n0000000000 65535 f \n%b%b" % (len(objects) + 1, table, end.encode())


def page_texts(parsed: Parsed) -> list[str]:
    return [parsed.text[page.start : page.end] for page in parsed.pages]


def test_each_page_is_a_range_of_the_text() -> None:
    parsed = parse("a.pdf", pdf([["first page", "second line"], [], ["third page"]]))
    assert page_texts(parsed) == ["first page\nsecond line", "", "third page"]
    assert [page.number for page in parsed.pages] == [1, 2, 3]
    assert parsed.media_type == "application/pdf"


def test_bookmarks_become_sections_where_their_title_stands() -> None:
    pages = [["Contents", "Ducks 1"], ["1 Ducks", "They swim.", "Geese", "They fly."]]
    parsed = parse("a.pdf", pdf(pages, [("Ducks", 1), ("Geese", 1), ("Swans", 1)]))
    assert [(s.title, parsed.text[s.start : s.body]) for s in parsed.sections] == [
        ("Ducks", "1 Ducks"),
        ("Geese", "Geese"),
    ]


def test_the_title_comes_from_the_properties_unless_a_program_wrote_it() -> None:
    assert parse("my_file.pdf", pdf([["words"]], info="/Title (The Report)")).title == "The Report"
    assert parse("my_file.pdf", pdf([["words"]], info="/Title (Microsoft Word - x.doc)")).title == "my file"


def test_a_page_without_a_text_layer_is_called_a_scan() -> None:
    with pytest.raises(Rejected, match=r"scan, recognise its text first"):
        parse("a.pdf", pdf([[], []]))


def test_a_file_cut_short_is_refused_not_read_in_part() -> None:
    whole = pdf([["first page"], ["second page"]])
    with pytest.raises(Rejected, match="cut short"):
        parse("a.pdf", whole[: len(whole) * 2 // 3])


def test_an_encrypted_file_asks_for_its_password_to_be_removed() -> None:
    hexes = "0" * 64
    encryption = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{hexes}> /U <{hexes}> /P -4 >> /ID [<00> <00>]"
    with pytest.raises(Rejected, match="remove the password"):
        parse("a.pdf", pdf([["secret words"]], trailer=encryption))


def test_garbage_behind_the_signature_is_damage() -> None:
    with pytest.raises(Rejected, match="damaged"):
        parse("a.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 8 + b"\n%%EOF")


def test_a_pdf_is_known_under_any_name() -> None:
    assert parse("upload.bin", pdf([["words"]])).media_type == "application/pdf"


def test_files_are_read_from_many_threads() -> None:
    """The library underneath is not thread-safe."""
    bodies = [pdf([[f"file {n} page {p}"] for p in range(5)]) for n in range(8)]
    results: dict[int, Parsed] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: parse("a.pdf", bodies[n])})) for n in range(len(bodies))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [page_texts(results[n])[4] for n in range(8)] == [f"file {n} page 4" for n in range(8)]
