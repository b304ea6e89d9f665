"""Parsers for e-mails (subject, sender, recipients and date, the text, and the attached files and messages) and for
mailboxes."""

import io
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.errors import HeaderParseError, MessageError
from email.generator import BytesGenerator
from email.header import Header, decode_header, make_header
from email.message import Message
from email.mime.application import MIMEApplication
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.parser import BytesHeaderParser
from email.policy import compat32
from functools import cached_property
from hashlib import sha256
from itertools import chain

from ingest.parse.calendar import Event, events_of
from ingest.parse.composer import Composer
from ingest.parse.encoded import without_encoded
from ingest.parse.encoding import decode
from ingest.parse.html import declared_encoding, parse_source
from ingest.parse.parsed import MAX_ATTACHMENTS, Attachment, Omissions, Parsed, one_line
from ingest.parse.sniff import MAIL_START, Format
from ingest.parse.text_tables import table_lines
from ragkv.errors import Rejected, TooLarge
from ragkv.file_types import is_image
from ragkv.text import scrub

_MAX_DEPTH, _MAX_STEM_CHARS = 20, 200
_COMPARED_EVENTS = 100
_NESTED = "its parts are nested too deeply: save the innermost message and upload that"
_UNFOLDED = compat32.clone(max_line_length=0)
_HEADERS = ("From", "To", "Cc", "Date")
_OF_A_PAGE = re.compile(r"image/.*|text/css|(text|application)/(x-)?(java|ecma)script")
_SIGNATURE = "-- "
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_LISTED = ("Date", "From", "Subject")


@dataclass
class Body:
    """A part of an e-mail's text as it was sent."""

    source: str
    is_html: bool
    omissions: Omissions = field(default_factory=Omissions)

    @cached_property
    def text(self) -> str:
        if self.is_html:
            return parse_source(self.source, "", Format.HTML, self.omissions).text
        return without_encoded(self.source, self.omissions)


@dataclass
class Mail:
    """An e-mail. `bodies` are parts of its text in order, `events` what it invites to."""

    subject: str
    headers: dict[str, str]
    bodies: list[Body] = field(default_factory=list)
    attachments: list[tuple[str, bytes]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    keeps_hidden: bool = False


def read_eml(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """A message as it is sent (EML) or a page as browsers save it (MHT). Of alternatives, the last with words is
    read.

    Its text says what it invites to and names what is attached; files and messages that are not empty are
    `attachments`.
    """
    try:
        message = message_from_bytes(body)
        headers = {name: header_of(message, name) for name in _HEADERS}
        mail = Mail(header_of(message, "Subject"), headers, keeps_hidden=omissions.keeps_hidden)
        _collect(message, mail, depth=0)
    except RecursionError:
        raise Rejected(_NESTED) from None
    except (MessageError, ValueError, LookupError, TypeError):  # all but the first: what is attached cannot be written
        raise Rejected("the message is damaged and cannot be read: save it again") from None
    return compose(mail, fallback_title, Format.EML, omissions)


def as_eml(mail: Mail) -> MIMEMultipart:
    """The mail as it would be sent, from what is known of it. The same mail gives the same bytes, by which a document
    that is read again knows its attachments: what parts them is a digest, which none of them holds."""
    contents = [body.source.encode(errors="replace") for body in mail.bodies] + [body for _, body in mail.attachments]
    message = MIMEMultipart(boundary=f"=={sha256(b''.join(contents)).hexdigest()}==")
    for name, words in {"Subject": mail.subject, **mail.headers}.items():
        if line := one_line(scrub(words)):
            message[name] = Header(line).encode()
    for body in mail.bodies:
        message.attach(MIMEText(body.source, "html" if body.is_html else "plain", "utf-8"))
    for name, content in mail.attachments:
        part = MIMEApplication(content)
        part.add_header("Content-Disposition", "attachment", filename=("utf-8", "", name))
        message.attach(part)
    return message


def file_name(subject: str) -> str:
    """A name for the file of a message, whose end says what it is."""
    stem = one_line(scrub(subject).replace("/", "-").replace("\\", "-"))[:_MAX_STEM_CHARS].strip()
    return f"{stem or 'message'}.eml"


def written(message: Message) -> bytes:
    """A message as a file."""
    file = io.BytesIO()
    BytesGenerator(file, mangle_from_=False, policy=_UNFOLDED).flatten(message)
    return file.getvalue()


def compose(mail: Mail, fallback_title: str, format_: Format, omissions: Omissions) -> Parsed:
    composer = Composer()
    composer.heading(mail.subject, level=1)
    lines = {name: " ".join(words.split()) for name, words in mail.headers.items()}
    composer.block("\n".join(f"{name}: {line}" for name, line in lines.items() if line))
    for body in mail.bodies:
        composer.block(body.text)
        omissions.include(body.omissions.left_out)
    said = " ".join(word for body in mail.bodies for word in body.text.split()) if mail.events else ""
    for number, event in enumerate(mail.events):
        composer.block(event.lines)
        is_said = number < _COMPARED_EVENTS and " ".join(event.description.split()) in said
        composer.block("" if is_said else event.description)
    attachments = [Attachment(one_line(scrub(name)) or "attachment", content) for name, content in mail.attachments]
    composer.block("\n".join(f"Attachment: {attachment.name}" for attachment in attachments))
    parsed = composer.parsed(one_line(scrub(mail.subject)) or fallback_title, format_)
    return replace(parsed, attachments=tuple(attachment for attachment in attachments if attachment.body.strip()))


def _collect(part: Message, mail: Mail, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise Rejected(_NESTED)
    payload = part.get_payload()
    if not isinstance(payload, list):
        _add(part, mail)
        return
    inside = [child for child in payload if isinstance(child, Message)]
    match part.get_content_type():
        case "multipart/alternative":
            _add_alternative(inside, mail, depth)
            return
        case "multipart/related":
            root = _root(part, inside)
            inside = [child for child in inside if child is root or _is_file(child)]
        case "message/delivery-status":
            mail.bodies.append(Body("\n\n".join(map(_fields, inside)), is_html=False))
            return
        case "message/rfc822":
            encoding = header_of(part, "Content-Transfer-Encoding").strip().lower()
            for message in (_unpacked(message) if encoding == "base64" else message for message in inside):
                attach(mail, file_name(header_of(message, "Subject")), written(message))
            return
    for child in inside:
        _collect(child, mail, depth + 1)


def _root(related: Message, parts: list[Message]) -> Message | None:
    """The page of parts that belong to one: the part that `start` names, else the first, or the first page if that is a
    picture, style or script."""
    start = _parameter(related, "start").strip("<>")
    named = (part for part in parts if start and header_of(part, "Content-ID").strip().lower().strip("<>") == start)
    pages = (part for part in parts if part.get_content_type() == "text/html")
    first_page = pages if parts and _OF_A_PAGE.fullmatch(parts[0].get_content_type()) else ()
    return next(chain(named, first_page, parts), None)


def _fields(block: Message) -> str:
    """The headers of a message, a line each, as they tell what became of a mail."""
    fields = ((name, _decoded(_as_text(words, block))) for name, words in block.raw_items())
    return "\n".join(f"{name}: {' '.join(words.split())}" for name, words in fields)


def _unpacked(message: Message) -> Message:
    """A message that was sent in base64, which no standard allows: it has no headers until it is decoded."""
    if message.items():
        return message
    message["Content-Transfer-Encoding"] = "base64"
    body = message.get_payload(decode=True)
    decoded = message_from_bytes(body) if isinstance(body, bytes) else message
    del message["Content-Transfer-Encoding"]
    return decoded if decoded.items() else message


def _is_file(part: Message) -> bool:
    """Whether a part beside a page is a separate file, and no picture, style or script of the page."""
    if part.get_content_disposition() == "attachment":
        return True
    name = _file_name(part)
    return bool(name) and not is_image(name) and not _OF_A_PAGE.fullmatch(part.get_content_type())


def _add_alternative(parts: list[Message], mail: Mail, depth: int) -> None:
    """Add the last of alternative parts that has words, or the last of all; of the others, events and what is attached
    within them. Raises Rejected for one that cannot be read if none has words."""
    read = [Mail("", {}, keeps_hidden=mail.keeps_hidden) for _ in parts]
    best: Mail | None = None
    refusals: list[Rejected] = []
    for part, alternative in zip(reversed(parts), reversed(read), strict=True):
        try:
            _collect(part, alternative, depth + 1)
            if best is None and any(any(map(str.isalnum, body.text)) for body in alternative.bodies):
                best = alternative
        except TooLarge:
            raise
        except Rejected as error:
            refusals.append(error)
    if best is None and refusals:
        raise refusals[0]
    best = best or next(reversed(read), None)
    for part, alternative in zip(parts, read, strict=True):
        mail.bodies += alternative.bodies if alternative is best else ()
        mail.events += alternative.events
        for name, body in alternative.attachments if alternative is best or part.is_multipart() else ():
            attach(mail, name, body)


def _add(part: Message, mail: Mail) -> None:
    kind = part.get_content_type()
    name = _file_name(part)
    body = part.get_payload(decode=True)
    if not isinstance(body, bytes) or (not name and not body.strip()):
        return
    is_shown = part.get_content_disposition() != "attachment"
    events: list[Event] = []
    if kind == "text/calendar" and is_shown:
        with suppress(Rejected):
            events = events_of(decode(body, part.get_content_charset()))
    mail.events += events
    if events and not name:
        return
    if kind in ("text/plain", "text/html") and not name and is_shown:
        is_html = kind == "text/html"
        charset = part.get_content_charset() or (declared_encoding(body) if is_html else None)
        text = decode(body, charset)
        if not is_html and _parameter(part, "format") == "flowed":
            text = _unflowed(text, deletes_spaces=_parameter(part, "delsp") == "yes")
        mail.bodies.append(Body(text, is_html, Omissions(keeps_hidden=mail.keeps_hidden)))
    else:
        attach(mail, name, body)


def _parameter(part: Message, name: str) -> str:
    return str(part.get_param(name, "")).strip().lower()


def attach(mail: Mail, name: str, body: bytes) -> None:
    """Attach a file. Raises TooLarge for more than MAX_ATTACHMENTS."""
    if len(mail.attachments) == MAX_ATTACHMENTS:
        raise TooLarge(f"it has more than {MAX_ATTACHMENTS:,} attachments: upload them as files")
    mail.attachments.append((name, body))


def header_of(message: Message, name: str) -> str:
    """The words of a header, however they are encoded; empty if there is none."""
    return _decoded(_raw(message, name))


def _file_name(part: Message) -> str:
    head = Message()
    for name in ("Content-Disposition", "Content-Type"):
        head[name] = _raw(part, name)
    return _decoded(head.get_filename() or "")


def _raw(part: Message, name: str) -> str:
    """A header as it stands."""
    return _as_text(next((words for key, words in part.raw_items() if key.lower() == name.lower()), ""), part)


def _as_text(words: str, part: Message) -> str:
    """The words of a header. Bytes beyond ASCII, which none should have, are decoded as UTF-8, in the first encoding
    that a part declares, or as Windows-1252."""
    if words.isascii():
        return words
    body = words.encode("ascii", "surrogateescape")
    declared = next(filter(None, (section.get_content_charset() for section in part.walk())), None)
    try:
        return decode(body, declared)
    except Rejected:
        return body.decode("cp1252", "replace")


def _decoded(words: str) -> str:
    """A header's words, with those that stand encoded in it."""
    between = "ascii" if words.isascii() else "raw-unicode-escape"  # as `decode_header` encodes what is not encoded
    try:
        parts = []
        for part, charset in decode_header(words):
            source = part if isinstance(part, bytes) else part.encode()
            if isinstance(part, bytes) and charset is None:
                source = part.decode(between).encode()
            parts.append((decode(source, charset), charset and "utf-8"))
        return str(make_header(parts))
    except (HeaderParseError, LookupError, ValueError, Rejected):
        return words


def _unflowed(text: str, *, deletes_spaces: bool) -> str:
    """Join each line that ends with a blank to the next of as many quotation marks. deletes_spaces: that blank is no
    part of the text (DelSp)."""
    paragraphs: list[list[str]] = []
    open_depth: int | None = None  # of the line that goes on, if one does
    for line in text.replace("\r\n", "\n").split("\n"):
        quotes = line[: len(line) - len(line.lstrip(">"))]
        words = line[len(quotes) :].removeprefix(" ")
        goes_on = words.endswith(" ") and words != _SIGNATURE
        if goes_on and deletes_spaces:
            words = words[:-1]
        if open_depth == len(quotes) and words and words != _SIGNATURE:
            paragraphs[-1].append(words)
        else:
            paragraphs.append([f"{quotes} {words}" if quotes else words])
        open_depth = len(quotes) if goes_on else None
    return "\n".join(map("".join, paragraphs))


def read_mailbox(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Date, sender and subject of each mail. The mails are attachments, in order."""
    begins = list(MAIL_START.finditer(body))
    if len(begins) > MAX_ATTACHMENTS:
        raise TooLarge(f"it has more than {MAX_ATTACHMENTS:,} mails: split it")
    ends = [*(match.start() for match in begins[1:]), len(body)]
    # Each as it was sent: without the line that begins it, and lines `>From` as they were.
    mails = [_QUOTED.sub(b"", body[begin.end() : end]) for begin, end in zip(begins, ends, strict=True)]
    headers = [BytesHeaderParser().parsebytes(mail) for mail in mails]
    rows = [[header_of(mail, name) for name in _LISTED] for mail in headers]
    composer = Composer()
    composer.block("\n".join(table_lines(_LISTED, rows)))
    names = (file_name(subject) for _, _, subject in rows)
    attachments = tuple(Attachment(name, mail) for name, mail in zip(names, mails, strict=True))
    return replace(composer.parsed(fallback_title, Format.MBOX), attachments=attachments)
