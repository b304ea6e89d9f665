"""What a file is taken for, and what is said about those that cannot be read."""

import io
import zipfile

import pytest

from ingest.parse import parse
from ingest.parse.sniff import _BY_SUFFIX, _NEVER_TEXT, SUPPORTED, Format, sniff
from ragkv.errors import Rejected, Unsupported
from ragkv.file_types import READ
from tests.support.scans import encoded, picture


def archive(**parts: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "body", "media_type"),
    [
        ("a.txt", b"plain words", "text/plain"),
        ("a.csv", b"a,b\n1,2", "text/csv"),
        ("README", b"plain words", "text/plain"),
        ("a.txt", b"A PDF begins with %PDF-1.7, an image with GIF89a.", "text/plain"),
        ("a.md", b"# Words", "text/markdown"),
        ("a.html", b"<p>words</p>", "text/html"),
        ("a.txt", b"<!DOCTYPE html><p>words</p>", "text/html"),
        ("feed", b"<?xml version='1.0'?><a>words</a>", "application/xml"),
        ("a.txt", b"<?xml is how it begins", "text/plain"),
        ("a.md", b"\xef\xbb\xbf\n<HTML><p>words</p>", "text/html"),
    ],
)
def test_content_decides_the_format_before_the_name_does(name: str, body: bytes, media_type: str) -> None:
    assert parse(name, body).media_type == media_type


def test_a_mail_that_begins_with_markup_is_a_mail() -> None:
    assert sniff("a.eml", b"<!DOCTYPE html><p>words</p>") is Format.EML


@pytest.mark.parametrize("body", [b"", b" \n\t ", "\ufeff".encode(), b"--- *** ---", "\u200b\u200b".encode()])
def test_a_file_without_words_is_rejected(body: bytes) -> None:
    with pytest.raises(Rejected, match=r"a\.txt: (the file is empty|it contains no text)"):
        parse("a.txt", body)


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("a.png", encoded(picture(["words"])), "recognise its text first"),
        ("a.txt", encoded(picture(["words"]), "JPEG"), "recognise its text first"),
        ("a.gz", b"\x1f\x8b\x08\0", "unpack it"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "save it as DOCX or PDF"),
        ("a.exe", b"MZ" + bytes(range(256)) * 8, "binary file"),
        ("a.dat", b"words and words " * 8 + b"\x01\x02\x0e\x1a" * 2, "binary file"),
        ("a.dat", b"words " * 100 + b"\0", "binary file"),
        ("a.xlsb", archive(**{"xl/workbook.bin": b"x", "[Content_Types].xml": b"<x/>"}), "save it as XLSX"),
        ("a.zip", archive(**{"a.txt": b"words"}), "unpack it"),
    ],
)
def test_other_formats_are_unsupported_with_what_to_do(name: str, body: bytes, says: str) -> None:
    with pytest.raises(Unsupported, match=says):
        parse(name, body)


@pytest.mark.parametrize("few", [b"words " * 30 + b"\x01\x02\x0e\x1a" * 2, b"words " * 200 + b"\0"])
def test_a_few_control_characters_make_no_binary_file(few: bytes) -> None:
    assert parse("a.txt", few).text.startswith("words words")


def test_an_archive_of_more_parts_than_any_document_has_is_refused() -> None:
    with pytest.raises(Rejected, match="more than 10000 parts"):
        parse("a.docx", archive(**{str(number): b"" for number in range(10_001)}))


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "A.PDF", "a.xlsx"])
def test_words_under_a_binary_name_are_not_taken_for_a_document(name: str) -> None:
    with pytest.raises(Rejected, match="save it again"):
        parse(name, b"this was once something else")


def test_an_archive_with_one_encrypted_part_asks_for_its_password_to_be_removed() -> None:
    body = bytearray(archive(**{"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"}))
    body[body.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(Rejected, match="remove the password"):
        parse("a.docx", bytes(body))


def test_an_encrypted_office_file_asks_for_its_password_to_be_removed() -> None:
    body = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(64) + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(Rejected, match="remove the password"):
        parse("a.docx", body)


def test_a_refusal_names_the_file_and_keeps_its_kind() -> None:
    with pytest.raises(Unsupported, match=r"^holiday photo\.png: it is an image"):
        parse("holiday photo.png", encoded(picture(["words"])))


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("annual_report.txt", "annual report"),
        ("../../etc/x.txt", "x"),
        ("C:\\files\\y.txt", "y"),
        ("\x00.txt", "Untitled"),
    ],
)
def test_a_document_without_a_title_of_its_own_is_called_like_its_file(name: str, title: str) -> None:
    assert parse(name, b"words").title == title


def test_every_format_has_an_ending_by_which_data_sources_and_uploads_choose_files():
    by_name = {f".{one.name.lower()}" for one in Format} - {".notebook"}
    assert by_name | {*_BY_SUFFIX, *_NEVER_TEXT} <= set(READ)
    assert all(kind in SUPPORTED for kind in ("PDF", "Office", "mail", "text or images"))
