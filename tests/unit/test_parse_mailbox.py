"""Mailboxes, and mails whose lines were broken to be sent."""

import mailbox
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import pytest

from ingest.parse import parse
from ragkv.errors import TooLarge
from tests.support.growth import assert_linear, read_or_refuse

FROM = b"From ann@example.org Fri Nov 27 17:25:29 2026\n"


def mail(subject: str, text: str, file: bytes = b"") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "Ann <ann@example.org>"
    message["Date"] = "Mon, 01 Jan 2024 10:00:00 +0000"
    message.set_content(text)
    if file:
        message.add_attachment(file, "application", "octet-stream", filename="plan.txt")
    return message


def test_each_mail_of_a_mailbox_is_a_document(tmp_path: Path):
    box = mailbox.mbox(tmp_path / "box.mbox")
    for message in (mail("Größe", "Für drei Tage.\n\nFrom here on it rains."), mail("Plan", "Attached.", b"words")):
        box.add(message)
    box.flush()
    parsed = parse("box.mbox", (tmp_path / "box.mbox").read_bytes())
    assert parsed.media_type == "application/mbox"
    assert parsed.text.split("\n\n") == [
        "Date | From | Subject",
        "Date: Mon, 01 Jan 2024 10:00:00 +0000 | From: Ann <ann@example.org> | Subject: Größe",
        "Date: Mon, 01 Jan 2024 10:00:00 +0000 | From: Ann <ann@example.org> | Subject: Plan",
    ]
    inside = [parse(attachment.name, attachment.body) for attachment in parsed.attachments]
    assert [attachment.name for attachment in parsed.attachments] == ["Größe.eml", "Plan.eml"]
    assert inside[0].text.endswith("Für drei Tage.\n\nFrom here on it rains.")
    assert [attachment.body for attachment in inside[1].attachments] == [b"words"]


BOXES = {
    "of Thunderbird": b"From - Thu Nov 26 10:00:00 2026\r\nX-Mozilla-Status: 0001\r\nSubject: A\r\n\r\nx\r\n\r\nFrom - Thu Nov 26 10:01:00 2026\r\nSubject: B\r\n\r\ny\r\n",
    "of Gmail": b"From 1780@xxx Thu Nov 26 10:00:00 +0000 2026\nSubject: A\n\nx\n\nFrom 1781@xxx Thu Nov 26 10:00:00 +0000 2026\nSubject: B\n\ny\n",
    "with an old line of the queue": FROM + b">From ann Fri Nov 27 17:25:29 2026\nSubject: A\n\nx\n\n" + FROM + b"Subject: B\n\ny\n",
    "with lines that begin alike": FROM + b"Subject: A\n\nx\n\nFrom here at 10:00 on\nit rains.\n\n" + FROM + b"Subject: B\n\ny\n",
}  # fmt: skip


def test_mailboxes_of_all_programs_are_split_where_mails_begin(subtests: pytest.Subtests):
    for kind, body in BOXES.items():
        with subtests.test(kind):
            assert [attachment.name for attachment in parse("Inbox", body).attachments] == ["A.eml", "B.eml"]


def test_other_texts_and_one_mail_are_no_mailbox(subtests: pytest.Subtests):
    files = {"a.txt": b"From Oslo at 10:00\nwe went on.", "b.txt": FROM, "a.eml": FROM + b"Subject: A\n\nx\n"}
    for name, body in files.items():
        with subtests.test(name):
            assert parse(name, body).media_type != "application/mbox"


def test_a_mailbox_with_too_many_mails_is_refused():
    with pytest.raises(TooLarge, match="more than 1,000 mails"):
        parse("a.mbox", (FROM + b"Subject: A\n\nx\n\n") * 1_001)


def test_a_mailbox_takes_linear_time(subtests: pytest.Subtests):
    for piece in (FROM + b"Subject: A\n\n\n", FROM, b"From ", b"\n\nFrom 10:00"):
        with subtests.test(piece):
            assert_linear(partial(read_or_refuse, "a.mbox"), lambda n, p=piece: FROM + b"A: b\n\nx" + p * n, 30)


FLOWED = {
    "joined": ("yes", "The boiler must be exam \nined every 18 mon \nths.", "The boiler must be examined every 18 months."),
    "spaces": ("no", "The boiler must \nbe examined.\nNow.", "The boiler must be examined.\nNow."),
    "paragraphs": ("no", "One \n\ntwo.", "One\n\ntwo."),
    "quotations": ("no", "> He must \n> come.\n>> She \n> not.\nYes \n> x", "> He must come.\n>> She\n> not.\nYes\n> x"),
    "signature": ("no", "Bye \n-- \nAnn", "Bye\n--\nAnn"),
    "stuffed": ("no", " From here\n > no quotation", "From here\n> no quotation"),
}  # fmt: skip


def test_flowed_lines_are_paragraphs(subtests: pytest.Subtests):
    for kind, (deletes, sent, text) in FLOWED.items():
        with subtests.test(kind):
            head = f"Content-Type: text/plain; charset=utf-8; Format=Flowed; DelSp={deletes}\n\n"
            assert parse("a.eml", (head + sent).encode()).text == text


def test_lines_of_other_mail_stay():
    assert parse("a.eml", b"Content-Type: text/plain\n\nexam \nined").text == "exam\nined"
