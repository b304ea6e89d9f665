"""Mail: headers, alternatives, messages and files attached to it."""

from email.message import EmailMessage

import pytest

from ingest.parse import parse
from ragkv.errors import TooLarge
from tests.made_files import docx, paragraph, sheet_rows, xlsx


def mail(text: str = "Some words.") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = "Größe der Pläne"
    message["From"] = "Zoë Example <zoe@example.org>"
    message["To"] = "b@example.org"
    message["Date"] = "Mon, 01 Jan 2024 10:00:00 +0000"
    message.set_content(text)
    return message


HEAD = "Größe der Pläne\n\nFrom: Zoë Example <zoe@example.org>\nTo: b@example.org\nDate: Mon, 01 Jan 2024 10:00:00 +0000\n\n"


def test_a_mail_is_its_subject_who_wrote_it_when_and_the_words():
    parsed = parse("a.eml", mail().as_bytes())
    assert parsed.title == "Größe der Pläne"
    assert parsed.text == HEAD + "Some words."


def test_of_alternatives_the_last_is_read():
    message = mail("plain")
    message.add_alternative("<p>rich <b>words</b></p><script>no</script>", subtype="html")
    assert parse("a.eml", message.as_bytes()).text == HEAD + "rich words"


def test_attachments_that_can_be_read_are_sections_and_others_are_named():
    message = mail()
    message.add_attachment(
        docx(paragraph("Plan", "H1") + paragraph("from Word")), "application", "x", filename="a.docx"
    )
    message.add_attachment(xlsx({"Sheet": sheet_rows([["a", "b"], [1, 2]])}), "application", "x", filename="täble.xlsx")
    message.add_attachment(b"\x89PNG", "image", "png", filename="photo.png")
    parsed = parse("a.eml", message.as_bytes())

    assert parsed.text.removeprefix(HEAD).split("\n\n") == [
        "Some words.", "Attachment: a.docx", "Plan", "from Word", "Attachment: täble.xlsx", "Sheet", "a | b", "a: 1 | b: 2",
        "Attachment: photo.png",
    ]  # fmt: skip
    assert [(s.title, s.level) for s in parsed.sections] == [
        ("Größe der Pläne", 1), ("Attachment: a.docx", 1), ("Plan", 2), ("Attachment: täble.xlsx", 1), ("Sheet", 2),
    ]  # fmt: skip


def test_a_forwarded_message_is_read_after_its_own_headers():
    message = mail()
    message.add_attachment(mail("inner words"))
    assert (
        parse("a.eml", message.as_bytes()).text
        == HEAD + "Some words.\n\nSubject: " + HEAD.replace("\n\n", "\n", 1) + "inner words"
    )


def test_a_file_that_is_a_mail_is_kept_by_its_name_alone():
    message = mail()
    message.add_attachment(mail("inner").as_bytes(), "application", "octet-stream", filename="b.eml")
    assert parse("a.eml", message.as_bytes()).text == HEAD + "Some words.\n\nAttachment: b.eml"


def test_old_encodings_are_decoded():
    body = "Subject: =?iso-8859-2?Q?=B3=F3d=BC?=\nContent-Type: text/plain; charset=iso-8859-2\n\nŁódź i Kraków".encode(
        "iso-8859-2"
    )
    parsed = parse("a.eml", body)
    assert (parsed.title, parsed.text) == ("łódź", "łódź\n\nŁódź i Kraków")


def test_too_many_attachments_are_refused():
    body = b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\nContent-Type: image/png\n\nx\n" * 1_001
    with pytest.raises(TooLarge, match="attachments"):
        parse("a.eml", body)
