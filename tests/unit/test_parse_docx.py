"""Word documents: structure kept, archives that lie refused."""

import pytest

from ingest.parse import parse
from ingest.parse.archive import MAX_XML_BYTES
from ragkv.errors import Rejected, TooLarge
from tests.made_files import docx, paragraph


def test_styles_give_the_title_and_the_sections() -> None:
    body = (
        paragraph("Royal houses", "Title") + paragraph("Anna", "H1") + paragraph("A queen.") + paragraph("Youth", "H2")
    )
    parsed = parse("a.docx", docx(body + paragraph("Born.")))
    assert parsed.title == "Royal houses"
    assert [(s.title, s.level) for s in parsed.sections] == [("Royal houses", 1), ("Anna", 1), ("Youth", 2)]
    assert parsed.text == "Royal houses\n\nAnna\n\nA queen.\n\nYouth\n\nBorn."


def test_the_title_may_come_from_the_properties() -> None:
    core = '<c:p xmlns:c="x" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Plan</dc:title></c:p>'
    assert parse("a.docx", docx(paragraph("words"), **{"docProps/core.xml": core.encode()})).title == "The Plan"


def test_tables_are_lines_with_their_cells_apart() -> None:
    cell = "<w:tc>{}</w:tc>".format
    row = "<w:tr>{}</w:tr>".format
    table = row(cell(paragraph("Name")) + cell(paragraph("Year"))) + row(
        cell(paragraph("Anna")) + cell(paragraph("1702"))
    )
    assert parse("a.docx", docx(f"<w:tbl>{table}</w:tbl>")).text == "Name | Year\nAnna | 1702"


def test_a_text_box_is_part_of_the_text() -> None:
    box = (
        '<w:p><w:r><w:pict xmlns:v="urn:schemas-microsoft-com:vml"><v:shape><v:textbox><w:txbxContent>'
        f"{paragraph('in the box')}</w:txbxContent></v:textbox></v:shape></w:pict></w:r></w:p>"
    )
    assert "in the box" in parse("a.docx", docx(paragraph("before") + box)).text


def test_a_document_without_words_is_rejected() -> None:
    with pytest.raises(Rejected, match="no text"):
        parse("a.docx", docx("<w:p/>"))


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_read() -> None:
    bomb = docx(paragraph("words"), **{"word/footnotes.xml": bytes(MAX_XML_BYTES + 1)})
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge, match="unpacks to"):
        parse("a.docx", bomb)


def test_entities_are_refused() -> None:
    body = docx(paragraph("&a;"), prolog='<!-- --><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>')
    with pytest.raises(Rejected, match="entities"):
        parse("a.docx", body)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(Rejected, match="nested too deeply"):
        parse("a.docx", docx("<w:sdt><w:sdtContent>" * 3000 + "</w:sdtContent></w:sdt>" * 3000))


def test_damage_anywhere_is_a_refusal() -> None:
    whole = docx(paragraph("some words of a document " * 50))
    for place in range(0, len(whole), 7):
        body = bytearray(whole)
        body[place] ^= 0xFF
        try:
            parse("a.docx", bytes(body))
        except Rejected:
            continue


def test_a_file_cut_short_is_refused() -> None:
    whole = docx(paragraph("words"))
    with pytest.raises(Rejected, match="damaged or cut short"):
        parse("a.docx", whole[: len(whole) // 2])
