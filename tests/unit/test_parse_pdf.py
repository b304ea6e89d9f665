"""PDF: pages, bookmarks, and files that are no longer whole. The files are written here, byte by byte."""

import threading

import pytest

from ingest.parse import Parsed, parse
from ragkv.errors import Rejected, Unsupported
from tests.support.made_files import pdf
from tests.support.scans import picture, scanned_pdf


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
    for title in ("Microsoft Word - x.doc", r"\(anonymous\)"):
        assert parse("my_file.pdf", pdf([["words"]], info=f"/Title ({title})")).title == "my file"


def test_a_title_or_bookmark_with_half_a_character_is_left_out() -> None:
    body = pdf([["Ducks"], ["Geese"]], [("@", 0), ("Geese", 1)], info="/Title <FEFF0041D83D>")
    parsed = parse("my_file.pdf", body.replace(b"/Title (@)", b"/Title <FEFF0041D83D>"))
    assert (parsed.title, parsed.text) == ("my file", "Ducks\n\nGeese")
    assert [section.title for section in parsed.sections] == ["Geese"]


def test_a_page_without_a_text_layer_is_called_a_scan() -> None:
    with pytest.raises(Unsupported, match="it has no text layer: recognise its text first"):
        parse("a.pdf", scanned_pdf([picture(["words"])]))


def test_blank_pages_have_no_text() -> None:
    with pytest.raises(Rejected, match="no text on its pages"):
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
