"""Mail: headers, alternatives, messages and files attached to it."""

import struct
from base64 import b64encode
from email.header import Header
from email.message import EmailMessage

import pytest

from ingest.parse import Attachment, parse
from ingest.parse.mail import Body, Mail, as_eml, written
from ingest.parse.msg import decompress_rtf
from ragkv.errors import Rejected, TooLarge
from tests.support.made_files import Storage, ole


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


@pytest.mark.parametrize(
    ("subtype", "last"),
    [
        ("calendar", "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"),
        ("html", "<p><img src='cid:a'>&nbsp;</p>"),
        ("x-amp-html", "<html amp4email>words of a script</html>"),
    ],
)
def test_of_alternatives_the_last_with_words_is_read(subtype: str, last: str):
    """An invitation, or a picture instead of the words."""
    message = mail("plain words")
    message.add_alternative(last, subtype=subtype)
    parsed = parse("a.eml", message.as_bytes())
    assert (parsed.text, parsed.attachments) == (HEAD + "plain words", ())


UNDECODABLE = ("plain", bytes(range(0x80, 0x100)) * 4)
TOO_DEEP = ("html", b"<div>" * 100_000 + b"deep words")
NO_WORDS = ("html", b"<p>&nbsp;</p>")


def alternatives(*parts: tuple[str, bytes]) -> bytes:
    """A mail of parts, each with its subtype and its body."""
    written_parts = (b"--b\nContent-Type: text/%s\n\n%s\n" % (subtype.encode(), body) for subtype, body in parts)
    return b"Content-Type: multipart/alternative; boundary=b\n\n" + b"".join(written_parts) + b"--b--\n"


@pytest.mark.parametrize(
    "parts",
    [
        (UNDECODABLE, ("html", b"<p>good words</p>")),
        (("plain", b"good words"), TOO_DEEP),
        (("plain", b"good words"), UNDECODABLE, NO_WORDS),
    ],
)
def test_an_alternative_that_cannot_be_read_is_passed_over(parts: tuple[tuple[str, bytes], ...]):
    assert parse("a.eml", alternatives(*parts)).text == "good words"


@pytest.mark.parametrize("parts", [(UNDECODABLE, TOO_DEEP), (("plain", b" "), TOO_DEEP), (TOO_DEEP, NO_WORDS)])
def test_alternatives_are_refused_if_none_with_words_can_be_read(parts: tuple[tuple[str, bytes], ...]):
    with pytest.raises(Rejected, match="nested too deeply"):
        parse("a.eml", alternatives(*parts))


def test_an_invitation_alone_is_an_attachment():
    message = mail()
    message.set_content("BEGIN:VCALENDAR\n", subtype="calendar")
    message.make_alternative()
    assert parse("a.eml", message.as_bytes()).attachments == (Attachment("attachment", b"BEGIN:VCALENDAR\n"),)


INVITATION = """BEGIN:VCALENDAR
METHOD:REQUEST
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:16010101T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY;LANGUAGE=de:Review of the plans\\, part 2
DTSTART;TZID="Europe/Berlin":20260302T140000
DTEND:20260302T143000Z
LOCATION:Room 7\\; second flo
 or
DESCRIPTION:Bring the plans.\\nAnd a pen.
BEGIN:VALARM
DESCRIPTION:REMINDER
END:VALARM
END:VEVENT
END:VCALENDAR
"""
EVENT = (
    "Event: Review of the plans, part 2\nStart: 2026-03-02 14:00 (Europe/Berlin)\nEnd: 2026-03-02 14:30 UTC\n"
    "Location: Room 7; second floor"
)


@pytest.mark.parametrize("name", [None, "meeting.ics"])
def test_the_time_and_place_of_an_invitation_are_part_of_the_text(name: str | None):
    message = mail("Please come.")
    message.add_alternative(INVITATION, subtype="calendar", params={"name": name} if name else None)
    parsed = parse("a.eml", message.as_bytes())
    assert (parsed.text, parsed.attachments) == (
        f"{HEAD}Please come.\n\n{EVENT}\n\nBring the plans.\nAnd a pen.", ()
    )  # fmt: skip


def test_an_invitation_s_description_is_not_repeated_and_an_attached_calendar_is_a_file():
    message = mail("Bring the plans.\n\nAnd a pen.")
    message.add_alternative(INVITATION, subtype="calendar")
    message.add_attachment(INVITATION, subtype="calendar", filename="invite.ics")
    parsed = parse("a.eml", message.as_bytes())
    assert parsed.text == f"{HEAD}Bring the plans.\n\nAnd a pen.\n\n{EVENT}\n\nAttachment: invite.ics"
    assert [attachment.name for attachment in parsed.attachments] == ["invite.ics"]


def test_a_day_and_a_time_of_another_form_are_read():
    event = "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20260302\nDTEND:tomorrow\nEND:VEVENT\nBEGIN:VEVENT\nEND:VEVENT\nEND:X"
    assert parse("a.eml", f"Content-Type: text/calendar\n\n{event}".encode()).text == "Start: 2026-03-02\nEnd: tomorrow"


def test_an_event_that_repeats_or_is_cancelled_says_so():
    event = "BEGIN:VEVENT\nSTATUS:CANCELLED\nSUMMARY:Sync\nRRULE:FREQ=WEEKLY;BYDAY=TU\nEND:VEVENT"
    text = parse("a.eml", f"Content-Type: text/calendar\n\n{event}".encode()).text
    assert text == "Event: Sync\nRepeats: FREQ=WEEKLY;BYDAY=TU\nStatus: CANCELLED"


def test_a_named_file_beside_a_page_is_an_attachment_unless_it_is_part_of_the_page():
    message = mail()
    message.set_content("<p>words</p>", subtype="html")
    message.add_related(b"%PDF-1.5", "application", "pdf", filename="contract.pdf", disposition="inline")
    for kind, name in (
        ("image/png", "a"),
        ("application/octet-stream", "b.png"),
        ("text/css", "c"),
        ("text/javascript", "d"),
    ):
        message.add_related(b"x", *kind.split("/"), filename=name, disposition="inline")
    message.add_related(b"x", "application", "octet-stream")
    assert parse("a.eml", message.as_bytes()).attachments == (Attachment("contract.pdf", b"%PDF-1.5"),)


PICTURE = "Content-Type: image/png\nContent-ID: <b>\n\nx\n"
PAGE = "Content-Type: text/html\nContent-ID: <P@x>\n\n<p>page</p>\n"
FRAME = "Content-Type: text/html\nContent-ID: <f>\n\n<p>frame</p>\n"


@pytest.mark.parametrize(
    ("start", "parts"),
    [
        ("; start='<P@x>'", (PICTURE, FRAME, PAGE)),
        ("; start='<none>'", (PICTURE, PAGE)),
        ("", (PICTURE, PAGE, FRAME)),
        ("", (PAGE, FRAME)),
    ],
)
def test_the_page_of_related_parts_is_the_one_that_start_names_or_the_first(start: str, parts: tuple[str, ...]):
    inside = "".join(f"--b\n{part}" for part in parts)
    head = f"Content-Type: multipart/related; boundary=b{start}\n\n".replace("'", '"')
    assert parse("a.eml", f"{head}{inside}--b--\n".encode()).text == "page"


def test_a_bounce_says_whom_it_did_not_reach_and_why():
    status = (
        "Reporting-MTA: dns; mx.example.org\n\nFinal-Recipient: rfc822; bob@example.org\n"
        "Diagnostic-Code: smtp;\n 550 mailbox full of Zoë\n"
    )
    report = (
        "Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n"
        "--b\nContent-Type: text/plain\n\nIt failed.\n"
        f"--b\nContent-Type: message/delivery-status\n\n{status}\n--b--\n"
    )
    assert parse("a.eml", report.encode()).text.split("\n\n") == [
        "It failed.",
        "Reporting-MTA: dns; mx.example.org",
        "Final-Recipient: rfc822; bob@example.org\nDiagnostic-Code: smtp; 550 mailbox full of Zoë",
    ]


@pytest.mark.parametrize(
    ("inner", "name", "body"),
    [
        (b64encode(b"Subject: Plans\n\nwords\n" * 9).decode(), "Plans.eml", b"Subject: Plans\n\nwords\n"),
        ("Subject: Plans\n\nwords\n", "Plans.eml", b"Subject: Plans\n\nwords\n"),
        ("\nno base64!\n", "message.eml", b"\nno base64!\n"),
    ],
)
def test_a_forwarded_message_in_base64_is_decoded(inner: str, name: str, body: bytes):
    part = f"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{inner}"
    (forwarded,) = parse(
        "a.eml", f"Content-Type: multipart/mixed; boundary=b\n\n--b\n{part}\n--b--\n".encode()
    ).attachments
    assert forwarded.name == name
    assert forwarded.body.startswith(body)


def test_what_is_attached_to_any_of_the_alternatives_is_an_attachment():
    message = mail("plain words")
    message.add_alternative("<img src='cid:a'>", subtype="html")
    (_, rich) = message.get_payload()
    rich.add_related(b"\x89PNG", "image", "png", cid="<a>")
    rich.add_related(b"a | b", "application", "x", filename="a.csv", disposition="attachment")
    parsed = parse("a.eml", message.as_bytes())
    assert parsed.text == HEAD + "plain words\n\nAttachment: a.csv"
    assert parsed.attachments == (Attachment("a.csv", b"a | b"),)


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
    made = Mail("Größe", headers, [Body("<p>rich <b>words</b></p>", is_html=True)], [("ü.txt", b"words\r\n")])
    parsed = parse("a.eml", written(as_eml(made)))
    assert parsed.text == (
        "Größe\n\nFrom: Zoë Example <zoe@example.org>\nTo: b@example.org Bcc: c@example.org\n\n"
        "rich words\n\nAttachment: ü.txt"
    )
    assert parsed.attachments == (Attachment("ü.txt", b"words\r\n"),)


def test_a_message_keeps_the_end_of_its_name_whatever_its_subject():
    inner = mail("inner words")
    inner.replace_header("Subject", "Re: a/b " + "long " * 100)
    message = mail()
    message.add_attachment(inner)
    (forwarded,) = parse("a.eml", message.as_bytes()).attachments
    assert (forwarded.name[:10], forwarded.name[-4:]) == ("Re: a-b lo", ".eml")


def uncompressed(rtf: bytes) -> bytes:
    """RTF as a message may keep it without compression."""
    return struct.pack("<II4sI", len(rtf) + 12, len(rtf), b"MELA", 0) + rtf


def outlook(subject: str, text: str, **attached: Storage) -> Storage:
    """A message as Outlook keeps it."""
    words = {"0037001F": subject, "0C1A001F": "Zoë Example", "1000001F": text}
    streams: Storage = {f"__substg1.0_{name}": value.ljust(2_048).encode("utf-16-le") for name, value in words.items()}
    return {"__properties_version1.0": bytes(4_096), **streams, **attached}


def test_messages_and_files_attached_to_a_message_of_outlook_are_attachments():
    file: Storage = {
        "__substg1.0_3707001F": "ü.txt".ljust(2_048).encode("utf-16-le"),
        "__substg1.0_37010102": b"w" * 4_096,
    }
    inner = outlook("Größe", "inner words", **{"__attach_version1.0_#00000000": file})
    outer = outlook("Outer", "Words.", **{"__attach_version1.0_#00000000": {"__substg1.0_3701000D": inner}})
    parsed = parse("a.msg", ole(outer))
    assert parsed.text == "Outer\n\nFrom: Zoë Example\n\nWords.\n\nAttachment: Größe.eml"

    (forwarded,) = parsed.attachments
    inside = parse(forwarded.name, forwarded.body)
    assert inside.text == "Größe\n\nFrom: Zoë Example\n\ninner words\n\nAttachment: ü.txt"
    assert inside.attachments == (Attachment("ü.txt", b"w" * 4_096),)


def test_a_message_attached_to_one_of_outlook_is_the_same_file_whenever_it_is_read():
    inner = outlook("Inner", "inner words")
    body = ole(outlook("Outer", "Words.", **{"__attach_version1.0_#00000000": {"__substg1.0_3701000D": inner}}))
    assert parse("a.msg", body).attachments == parse("a.msg", body).attachments != ()


def test_a_message_of_outlook_with_an_encrypted_file_is_read():
    file: Storage = {
        "__substg1.0_3707001F": "plan.docx".ljust(2_048).encode("utf-16-le"),
        "__substg1.0_37010102": ole({"EncryptedPackage": b"x" * 4_096}),
    }
    parsed = parse("a.msg", ole(outlook("Outer", "Words.", **{"__attach_version1.0_#00000000": file})))
    (attached,) = parsed.attachments
    assert attached.name == "plan.docx"
    with pytest.raises(Rejected, match="remove the password"):
        parse(attached.name, attached.body)


COMPRESSED = bytes.fromhex(
    "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
)
"""The example of [MS-OXRTFCP], 4.1: "hello world"."""


@pytest.mark.parametrize(
    ("compressed", "rtf"),
    [
        (COMPRESSED.hex(), rb"{\rtf1\ansi\ansicpg1252\pard hello world}" + b"\r\n"),
        ("1a0000001c0000004c5a4675e2d44b51410004205758595a0d6e7d010eb0", rb"{\rtf1 WXYZWXYZWXYZWXYZWXYZ}"),
        (uncompressed(rb"{\rtf1 plain}").hex(), rb"{\rtf1 plain}"),
    ],
)
def test_rtf_is_decompressed_as_in_the_specifications_examples(compressed: str, rtf: bytes):
    assert decompress_rtf(bytes.fromhex(compressed)) == rtf


def test_a_body_that_is_rtf_alone_is_read():
    rich = uncompressed(
        rb"{\rtf1\ansi\ansicpg1252\fromhtml1 {\*\htmltag64 <p>}\htmlrtf {\htmlrtf0 Gr\'f6\'dfe\htmlrtf\par}\htmlrtf0"
        rb"{\*\htmltag72 </p>}{\*\htmltag64 <p>}\htmlrtf {\htmlrtf0 of the plans\htmlrtf\par}\htmlrtf0}"
    )
    for body, words in ((COMPRESSED, "hello world"), (rich, "Größe\nof the plans")):
        message = outlook("Plans", "")
        message["__substg1.0_10090102"] = body.ljust(4_096, b"\0")
        assert parse("a.msg", ole(message)).text == f"Plans\n\nFrom: Zoë Example\n\n{words}"


def test_a_body_that_is_text_too_is_read_as_that():
    message = outlook("Plans", "Words.")
    message["__substg1.0_10090102"] = COMPRESSED.ljust(4_096, b"\0")
    assert parse("a.msg", ole(message)).text.endswith("\n\nWords.")


@pytest.mark.parametrize("place", [2, 11, 12, 20, 40])
def test_damaged_rtf_is_refused(place: int):
    body = bytearray(COMPRESSED)
    body[place] ^= 0x55
    message = outlook("Plans", "")
    message["__substg1.0_10090102"] = bytes(body).ljust(4_096, b"\0")
    with pytest.raises(Rejected, match="damaged"):
        parse("a.msg", ole(message))


@pytest.mark.parametrize(
    ("number", "encoding", "words"),
    [(932, "cp932", "富士山は高い山です。"), (1251, "cp1251", "Волга река"), (50220, "iso2022_jp", "富士山は高い。")],
)
def test_text_in_a_code_page_is_read_by_its_number(number: int, encoding: str, words: str):
    """Messages of Outlook that are not in Unicode; names of attached files, too."""
    numbers = b"".join(struct.pack("<IIQ", tag, 6, number) for tag in (0x3FFD0003, 0x3FDE0003))
    file: Storage = {
        "__properties_version1.0": bytes(4_096),
        "__substg1.0_3707001E": f"{words}.txt".encode(encoding).ljust(4_096),
        "__substg1.0_37010102": b"w" * 4_096,
    }
    for name, body in (("1000001E", words), ("10130102", f"<p>{words}</p>")):
        message: Storage = {
            "__properties_version1.0": (bytes(32) + numbers).ljust(4_096, b"\0"),
            f"__substg1.0_{name}": body.encode(encoding).ljust(4_096),
            "__attach_version1.0_#00000000": file,
        }
        parsed = parse("a.msg", ole(message))
        assert parsed.text == f"{words}\n\nAttachment: {words}.txt"


def test_streams_that_share_their_sectors_are_refused():
    """Else a small file could have a thousand large attachments."""
    file: Storage = {"__substg1.0_37010102": b"w" * 8_192}
    body = ole(outlook("Outer", "Words.", **{f"__attach_version1.0_#0000000{n}": file for n in range(3)}))
    first = next(body[at + 116 : at + 120] for at in range(0, len(body), 128) if _is_data(body, at))
    shared = b"".join(
        body[at : at + 116] + first + body[at + 120 : at + 128] if _is_data(body, at) else body[at : at + 128]
        for at in range(0, len(body), 128)
    )
    assert parse("a.msg", body).attachments
    with pytest.raises(Rejected, match="damaged"):
        parse("a.msg", shared[: len(body) - 16_384])


def _is_data(body: bytes, at: int) -> bool:
    return body[at : at + 40] == "__substg1.0_37010102".encode("utf-16-le")


def test_messages_in_messages_end_at_a_depth():
    with pytest.raises(Rejected, match="nested too deeply"):
        parse("a.eml", b"Content-Type: message/rfc822\n\n" * 1_000 + b"\nwords")


def test_old_encodings_are_decoded():
    body = "Subject: =?iso-8859-2?Q?=B3=F3d=BC?=\nContent-Type: text/plain; charset=iso-8859-2\n\nŁódź i Kraków".encode(
        "iso-8859-2"
    )
    parsed = parse("a.eml", body)
    assert (parsed.title, parsed.text) == ("łódź", "łódź\n\nŁódź i Kraków")


@pytest.mark.parametrize(
    ("words", "charset"),
    [
        ("富士山は日本でいちばん高い山です。", "iso-2022-jp"),
        ("长江是亚洲最长的河流。", "hz-gb-2312"),
        ("한강은 서해로 흘러간다.", "iso-2022-kr"),
        ("Größe", "utf-7"),
    ],
)
def test_old_encodings_in_seven_bits_are_decoded(words: str, charset: str):
    subject = Header(words, charset).encode() if charset != "utf-7" else "x"
    head = f"Subject: {subject}\nContent-Type: {{}}; charset={charset}\n\n"
    plain = head.format("text/plain").encode() + words.encode(charset)
    rich = head.format("text/html").encode() + f"<p>{words}</p>".encode(charset)
    for body in (plain, rich):
        parsed = parse("a.eml", body)
        assert parsed.title == (words if charset != "utf-7" else "x")
        assert parsed.text.endswith(words)


def test_a_subject_may_have_characters_that_windows_added_or_no_encoded_words():
    encoded = b64encode(b"\x1b$B-!IY;N;3\x1b(B").decode()
    for line in (f"=?ISO-2022-JP?B?{encoded}?=".encode(), b"\x1b$B-!IY;N;3\x1b(B"):
        assert parse("a.eml", b"Subject: " + line + b"\n\nwords").title == "①富士山"


@pytest.mark.parametrize(
    ("encoding", "charset"),
    [("utf-8", "utf-8"), ("utf-8", "iso-8859-1"), ("iso-8859-1", "iso-8859-1"), ("cp1252", "x")],
)
@pytest.mark.parametrize("encoded", ["", " =?utf-8?Q?=C3=A4=D0=B6?="])
def test_headers_may_have_bytes_beyond_ascii(encoding: str, charset: str, encoded: str):
    """Old and sloppy programs write them so, in the encoding of the text or in UTF-8."""
    head = (
        f"From: Zoë Example <zoe@example.org>\nSubject: Größe{encoded}\nContent-Type: multipart/mixed; boundary=b\n\n"
        f"--b\nContent-Type: text/plain; charset={charset}\n\nwords\n"
        '--b\nContent-Type: text/csv; name="Pläne.csv"\n\na | b\n--b--\n'
    )
    parsed = parse("a.eml", head.encode(encoding))
    subject = f"Größe{encoded and ' äж'}"
    assert parsed.title == subject
    assert parsed.text == f"{subject}\n\nFrom: Zoë Example <zoe@example.org>\n\nwords\n\nAttachment: Pläne.csv"


@pytest.mark.parametrize(("words", "charset"), [("Волга", "koi8-r"), ("富士山", "shift_jis"), ("长江", "gb2312")])
def test_headers_beyond_ascii_are_read_in_the_encoding_of_the_text(words: str, charset: str):
    body = f"Subject: {words}\nContent-Type: text/plain; charset={charset}\n\n{words}"
    assert parse("a.eml", body.encode(charset)).text == f"{words}\n\n{words}"


def test_too_many_attachments_are_refused():
    mixed = b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\nContent-Type: image/png\n\nx\n" * 1_001
    alternative = b"Content-Type: multipart/alternative; boundary=a\n\n--a\n\nwords\n--a\n"
    for body in (mixed, alternative + mixed + b"--a--\n"):
        with pytest.raises(TooLarge, match="attachments"):
            parse("a.eml", body)


CODE_PAGES = {
    "cp950": "各位同仁，下週三的會議改到下午三點舉行，地點仍然是二樓的會議室。請帶上預算表和水壩維修的照片。",
    "cp936": "各位同事，下周三的会议改到下午三点举行，地点仍然是二楼的会议室。请带上预算表和水坝维修的照片。",
    "cp932": "来週の水曜日の会議は午後三時からになりました。場所は二階の会議室のままです。予算表をお持ちください。",
    "cp949": "다음 주 수요일 회의는 오후 세 시로 바뀌었습니다. 장소는 그대로 이층 회의실입니다. 예산표를 가져오세요.",
    "cp1251": "В следующую среду совещание начнется в три часа дня. Место прежнее, зал на втором этаже. Возьмите смету и снимки.",
    "cp1253": "Την επόμενη Τετάρτη η συνάντηση αρχίζει στις τρεις το απόγευμα. Ο χώρος μένει ο ίδιος, στον δεύτερο όροφο.",
    "cp1255": "ביום רביעי הבא הישיבה תתחיל בשעה שלוש אחר הצהריים. המקום נשאר חדר הישיבות בקומה השנייה. נא להביא את התקציב.",
    "cp1256": "يوم الأربعاء القادم يبدأ الاجتماع في الساعة الثالثة بعد الظهر. المكان هو نفسه قاعة الاجتماعات في الطابق الثاني.",
    "cp874": "วันพุธหน้าการประชุมจะเริ่มเวลาบ่ายสามโมง สถานที่ยังคงเป็นห้องประชุมชั้นสอง กรุณานำงบประมาณและภาพถ่ายมาด้วย",
}  # fmt: skip


def narrow(encoding: str, text: str, code_page: int = 0, kind: str = "1000001E") -> Storage:
    """A message of Outlook that is not in Unicode; its subject and the name of its file are the text's first words."""
    numbers = struct.pack("<IIQ", 0x3FFD0003, 6, code_page) if code_page else b""
    subject = text[:6].encode(encoding).ljust(4_096)
    return {
        "__properties_version1.0": (bytes(32) + numbers).ljust(4_096, b"\0"),
        "__substg1.0_0037001E": subject,
        f"__substg1.0_{kind}": text.encode(encoding).ljust(4_096),
        "__attach_version1.0_#00000000": {"__substg1.0_3707001E": subject, "__substg1.0_37010102": b"w" * 4_096},
    }


def test_a_message_that_names_no_code_page_is_read_in_the_one_of_all_its_words(subtests: pytest.Subtests):
    for encoding, words in CODE_PAGES.items():
        text = words * 3
        for how, message in {
            "none": narrow(encoding, text),
            "Unicode": narrow(encoding, text, 1200),
            "unknown": narrow(encoding, text, 4_711),
            "html": narrow(encoding, text, kind="10130102"),
        }.items():
            with subtests.test(encoding=encoding, named=how):
                subject = text[:6].strip()
                parsed = parse("a.msg", ole(message))
                assert parsed.text == f"{subject}\n\n{text}\n\nAttachment: {subject}"
    with subtests.test("Windows-1252, wrongly"):
        text = CODE_PAGES["cp950"] * 3
        assert text in parse("a.msg", ole(narrow("cp950", text, 1252))).text


def test_a_page_of_outlook_is_read_in_the_encoding_that_it_declares():
    page = '<meta charset="big5"><p>二樓</p>'
    assert (
        "二樓"
        in parse(
            "a.msg",
            ole({"__properties_version1.0": bytes(4_096), "__substg1.0_10130102": page.encode("big5").ljust(4_096)}),
        ).text
    )


def test_a_message_whose_code_page_is_in_doubt_is_refused_and_accents_are_read():
    with pytest.raises(Rejected, match="encoding cannot be determined"):
        parse(
            "a.msg",
            ole({"__properties_version1.0": bytes(4_096), "__substg1.0_1000001E": bytes(range(0x80, 0x100)) * 40}),
        )
    accents: Storage = {
        "__properties_version1.0": bytes(4_096),
        "__substg1.0_1000001E": "Größe des Wehrs".encode("cp1252").ljust(4_096),
    }
    assert parse("a.msg", ole(accents)).text == "Größe des Wehrs"


def test_what_a_page_in_a_mail_hides_is_left_out_and_counted_once():
    message = mail("plain words")
    message.add_alternative("<p>rich words</p><p hidden>three hidden words</p>", subtype="html")
    parsed = parse("a.eml", message.as_bytes())
    assert (parsed.text, parsed.left_out.hidden_words) == (HEAD + "rich words", 3)
    assert parse("a.eml", message.as_bytes(), keeps_hidden=True).text == HEAD + "rich words\n\nthree hidden words"
