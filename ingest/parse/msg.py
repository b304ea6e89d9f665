"""Parser for messages that Outlook saves (MSG): properties in the streams of an OLE file ([MS-OXMSG])."""

import io
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from olefile import OleFileIO

from ingest.parse.encoding import decode
from ingest.parse.mail import MAX_ATTACHMENTS, Mail, ReadAttachment, compose
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected, TooLarge

_SUBJECT, _TEXT, _HTML, _SENDER, _ADDRESS, _TO, _CC = "0037", "1000", "1013", "0C1A", "5D01", "0E04", "0E03"
_SENT = b"\x40\x00\x39\x00"  # type and number of the property in the stream of those of fixed size
_FILE_NAMES, _DATA = ("3707", "3704", "3001"), "3701"
_UNICODE, _CODE_PAGE, _BINARY = "001F", "001E", "0102"
_HEADER_BYTES, _ENTRY_BYTES = 32, 16
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


def read_msg(body: bytes, fallback_title: str, read: ReadAttachment) -> Parsed:
    """The same as of a message that is sent. Messages attached to it are kept by their names alone."""
    try:
        with OleFileIO(io.BytesIO(body)) as file:
            mail = _mail(_Properties(file))
    except (OSError, ValueError, IndexError, struct.error, TypeError, RecursionError):
        raise Rejected("the message is damaged and cannot be read: save it again") from None
    return compose(mail, fallback_title, Format.MSG, read)


class _Properties:
    """Properties of a message, or of its part in `folder`."""

    def __init__(self, file: OleFileIO, folder: str = "") -> None:
        self._file = file
        self._folder = folder

    def binary(self, number: str, kind: str = _BINARY) -> bytes:
        return self._stream(f"__substg1.0_{number}{kind}")

    def text(self, number: str) -> str:
        if wide := self.binary(number, _UNICODE):
            return wide.decode("utf-16-le", "replace")
        return decode(self.binary(number, _CODE_PAGE), "cp1252")

    def sent(self) -> str:
        listed = self._stream("__properties_version1.0")
        for place in range(_HEADER_BYTES, len(listed) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            if listed[place : place + 4] == _SENT:
                (ticks,) = struct.unpack_from("<Q", listed, place + 8)
                return (_EPOCH + timedelta(microseconds=ticks // 10)).strftime("%Y-%m-%d %H:%M UTC")
        return ""

    def attachments(self) -> Iterator["_Properties"]:
        for folder, *inside in self._file.listdir(streams=False, storages=True):
            if folder.startswith("__attach_version1.0_") and not inside:
                yield _Properties(self._file, f"{folder}/")

    def _stream(self, name: str) -> bytes:
        path = self._folder + name
        return self._file.openstream(path).read() if self._file.exists(path) else b""


def _mail(message: _Properties) -> Mail:
    sender, address = message.text(_SENDER), message.text(_ADDRESS)
    headers = {
        "From": f"{sender} <{address}>" if address and address != sender else sender,
        "To": message.text(_TO),
        "Cc": message.text(_CC),
        "Date": message.sent(),
    }
    mail = Mail(message.text(_SUBJECT), headers)
    html = decode(message.binary(_HTML), "cp1252") or message.text(_HTML)
    mail.bodies.append((html, True) if html else (message.text(_TEXT), False))
    for number, attachment in enumerate(message.attachments()):
        if number == MAX_ATTACHMENTS:
            raise TooLarge(f"it has more than {MAX_ATTACHMENTS:,} attachments: upload them as files")
        name = next(filter(None, map(attachment.text, _FILE_NAMES)), "")
        mail.attachments.append((name, attachment.binary(_DATA)))
    return mail
