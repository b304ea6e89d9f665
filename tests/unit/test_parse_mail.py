"""Mail: headers, alternatives, messages and files attached to it."""

from email.message import EmailMessage

import pytest

from ingest.parse import Attachment, parse
from ingest.parse.mail import Mail, as_eml, written
from ragkv.errors import Rejected, TooLarge


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


def test_attachments_are_files_of_their_own_and_the_text_names_them():
    message = mail()
    message.add_attachment(b"a | b", "application", "x", filename="täble\u202e.csv")
    message.add_attachment(b"\x89PNG", "image", "png", filename="photo.png")
    message.add_attachment(b"", "text", "plain", filename="empty.txt")
    parsed = parse("a.eml", message.as_bytes())

    assert parsed.text == HEAD + "Some words.\n\nAttachment: täble.csv\nAttachment: photo.png\nAttachment: empty.txt"
    assert parsed.attachments == (Attachment("täble.csv", b"a | b"), Attachment("photo.png", b"\x89PNG"))


def test_a_forwarded_message_is_an_attachment_that_can_be_read():
    inner = mail("inner words")
    inner.add_attachment(mail("innermost words"))
    message = mail()
    message.add_attachment(inner)
    parsed = parse("a.eml", message.as_bytes())
    assert parsed.text == HEAD + "Some words.\n\nAttachment: Größe der Pläne.eml"

    (forwarded,) = parsed.attachments
    inside = parse(forwarded.name, forwarded.body)
    assert inside.text == HEAD + "inner words\n\nAttachment: Größe der Pläne.eml"
    (innermost,) = inside.attachments
    assert parse(innermost.name, innermost.body).text == HEAD + "innermost words"


def test_a_mail_from_another_format_is_written_as_it_would_be_sent():
    """Messages attached to those of Outlook become files so."""
    headers = {"From": "Zoë Example <zoe@example.org>", "To": "b@example.org\nBcc: c@example.org", "Cc": " "}
    made = Mail("Größe", headers, [("<p>rich <b>words</b></p>", True)], [("ü.txt", b"words\r\n")])
    parsed = parse("a.eml", written(as_eml(made)))
    assert parsed.text == (
        "Größe\n\nFrom: Zoë Example <zoe@example.org>\nTo: b@example.org Bcc: c@example.org\n\n"
        "rich words\n\nAttachment: ü.txt"
    )
    assert parsed.attachments == (Attachment("ü.txt", b"words\r\n"),)


def test_messages_in_messages_end_at_a_depth():
    with pytest.raises(Rejected, match="nested too deeply"):
        parse("a.eml", b"Content-Type: message/rfc822\n\n" * 1_000 + b"\nwords")


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
