"""Parser for e-mails: the subject, who wrote to whom and when, the words, and attachments that can be read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from email.errors import HeaderParseError, MessageError
from email.header import decode_header, make_header
from email.message import Message

from ingest.parse.clean import scrub
from ingest.parse.composer import Composer
from ingest.parse.encoding import decode
from ingest.parse.html import parse_source
from ingest.parse.parsed import Parsed, one_line
from ingest.parse.sniff import Format
from ragkv.errors import Rejected, TooLarge

ReadAttachment = Callable[[str, bytes], Parsed]
MAX_ATTACHMENTS = 1_000
_MAX_DEPTH = 20
_HEADERS = ("From", "To", "Cc", "Date")


@dataclass
class Mail:
    """An e-mail. `bodies` are parts of its text in order, each with whether it is HTML."""

    subject: str
    headers: dict[str, str]
    bodies: list[tuple[str, bool]] = field(default_factory=list)
    attachments: list[tuple[str, bytes]] = field(default_factory=list)


def read_eml(body: bytes, fallback_title: str, read: ReadAttachment) -> Parsed:
    """A message as it is sent (EML) or a page as browsers save it (MHT). Of alternatives, the last is read.

    Attachments that `read` can read are sections of their own; of others, only their names are kept.
    """
    try:
        message = message_from_bytes(body)
        mail = Mail(_header(message, "Subject"), _headers(message))
        _collect(message, mail, depth=0)
    except (MessageError, RecursionError):
        raise Rejected("the message is damaged and cannot be read: save it again") from None
    return compose(mail, fallback_title, Format.EML, read)


def compose(mail: Mail, fallback_title: str, format_: Format, read: ReadAttachment) -> Parsed:
    composer = Composer()
    composer.heading(mail.subject, level=1)
    composer.block(_summary("", mail.headers))
    for text, is_html in mail.bodies:
        if is_html:
            composer.block(parse_source(text, fallback_title, format_).text)
        else:
            composer.block(text)
    for name, body in mail.attachments:
        _attach(name, body, composer, read)
    return composer.parsed(one_line(scrub(mail.subject)) or fallback_title, format_)


def _summary(subject: str, headers: Mapping[str, str]) -> str:
    named = {"Subject": subject, **headers}.items()
    return "\n".join(f"{name}: {' '.join(words.split())}" for name, words in named if words.strip())


def _attach(name: str, body: bytes, composer: Composer, read: ReadAttachment) -> None:
    name = one_line(scrub(name)) or "attachment"
    try:
        parsed = read(name, body)
    except Rejected:
        composer.block(f"Attachment: {name}")
        return
    composer.heading(f"Attachment: {name}", level=1)
    composer.document(parsed, below=1)


def _collect(part: Message, mail: Mail, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise Rejected("its parts are nested too deeply: save the innermost message and upload that")
    payload = part.get_payload()
    if not isinstance(payload, list):
        _add(part, mail)
        return
    inside = [one for one in payload if isinstance(one, Message)]
    match part.get_content_type():
        case "multipart/alternative":
            readable = [one for one in inside if one.is_multipart() or one.get_content_maintype() == "text"]
            inside = (readable or inside)[-1:]
        case "multipart/related":  # the others are pictures and styles of the first
            inside = inside[:1]
        case "message/rfc822":
            mail.bodies += ((_summary(_header(one, "Subject"), _headers(one)), False) for one in inside)
    for one in inside:
        _collect(one, mail, depth + 1)


def _add(part: Message, mail: Mail) -> None:
    kind = part.get_content_type()
    name = _decoded(part.get_filename() or "")
    body = part.get_payload(decode=True)
    if not isinstance(body, bytes) or not body.strip():
        return
    if kind in ("text/plain", "text/html") and not name and part.get_content_disposition() != "attachment":
        mail.bodies.append((decode(body, part.get_content_charset()), kind == "text/html"))
    elif len(mail.attachments) == MAX_ATTACHMENTS:
        raise TooLarge(f"it has more than {MAX_ATTACHMENTS:,} attachments: upload them as files")
    else:
        mail.attachments.append((name, body))


def _headers(message: Message) -> dict[str, str]:
    return {name: _header(message, name) for name in _HEADERS}


def _header(message: Message, name: str) -> str:
    return _decoded(str(message.get(name, "")))


def _decoded(words: str) -> str:
    """A header's words, with those that stand encoded in it."""
    try:
        return str(make_header(decode_header(words)))
    except (HeaderParseError, LookupError, ValueError):
        return words
