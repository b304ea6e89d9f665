"""Parser for messages that Outlook saves (MSG): properties in the streams of an OLE file ([MS-OXMSG])."""

import codecs
import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice

from olefile import OleFileIO

from ingest.parse.encoding import code_page, decode, guessed_encoding
from ingest.parse.guess import guess_encoding, has_wide_words
from ingest.parse.html import declared_encoding
from ingest.parse.mail import Body, Mail, as_eml, attach, compose, file_name, written
from ingest.parse.parsed import MAX_ATTACHMENTS, Omissions, Parsed
from ingest.parse.rtf import read_rtf
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_SUBJECT, _TEXT, _HTML, _RTF, _SENDER, _ADDRESS = "0037", "1000", "1013", "1009", "0C1A", "5D01"
_TO, _CC = "0E04", "0E03"
# Type and number of properties in the stream of those of fixed size.
_SENT, _TEXT_CODE_PAGE, _HTML_CODE_PAGE = b"\x40\x00\x39\x00", b"\x03\x00\xfd\x3f", b"\x03\x00\xde\x3f"
_FILE_NAMES, _DATA = ("3707", "3704", "3001"), "3701"
_UNICODE, _CODE_PAGE, _BINARY = "001F", "001E", "0102"
_MESSAGE = f"__substg1.0_{_DATA}000D"
_HEADER_BYTES, _INNER_HEADER_BYTES, _ENTRY_BYTES = 32, 24, 16
_MAX_DEPTH = 5
_WESTERN = "cp1252"
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_HEAD = struct.Struct("<IIII")
_COMPRESSED, _PLAIN = b"LZFu", b"MELA"
_WINDOW = 4096
_BEGINNING = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans SerifSymbol"
    rb"ArialTimes New RomanCourier{\colortbl\red0\green0\blue0" + b"\r\n" + rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
"""The window's content before the first byte."""


def read_msg(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """The same as of a message that is sent. Messages attached to it are attachments as EML, which files can be."""
    try:
        with OleFileIO(io.BytesIO(body)) as file:
            mail = _mail(_Properties(_Streams(file, len(body))), 0, omissions)
    except (OSError, ValueError, IndexError, struct.error, TypeError, RecursionError):
        raise Rejected("the message is damaged and cannot be read: save it again") from None
    return compose(mail, fallback_title, Format.MSG, omissions)


class _Streams:
    """The streams of a file, each of which is read once, and no more than the file is long: hostile ones share their
    sectors."""

    def __init__(self, file: OleFileIO, num_bytes: int) -> None:
        self.storages = [tuple(path) for path in file.listdir(streams=False, storages=True)]
        self._file = file
        self._left = num_bytes
        self._read: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        """Nothing for a stream that is not there."""
        if path in self._read:
            return self._read[path]
        stream = self._read[path] = self._file.openstream(path).read() if self._file.exists(path) else b""
        self._left -= len(stream)
        if self._left < 0:
            raise ValueError("streams share their sectors")
        return stream


class _Properties:
    """Properties of a message, or of its part in `folder`. `encoding`: of 8-bit text, which other messages find."""

    def __init__(self, streams: _Streams, folder: tuple[str, ...] = (), encoding: str | None = None) -> None:
        self._streams = streams
        self._folder = folder
        self._known_encoding = encoding

    def binary(self, number: str, kind: str = _BINARY) -> bytes:
        return self._stream(f"__substg1.0_{number}{kind}")

    def text(self, number: str) -> str:
        if wide := self.binary(number, _UNICODE):
            return wide.decode("utf-16-le", "replace")
        narrow = self.binary(number, _CODE_PAGE)
        return decode(narrow, None if narrow.isascii() else self._encoding)

    def words(self, omissions: Omissions) -> Body:
        """Its text, HTML before plain text. RTF is read where it is all there is."""
        html = self.binary(_HTML)
        encoding = None
        if not html.isascii():
            encoding = self._code_page(_HTML_CODE_PAGE) or declared_encoding(html) or self._encoding
        if source := decode(html, encoding) or self.text(_HTML):
            return Body(source, is_html=True, omissions=omissions)
        if (text := self.text(_TEXT)).strip() or not (rtf := self.binary(_RTF)):
            return Body(text, is_html=False, omissions=omissions)
        return Body(read_rtf(decompress_rtf(rtf), "", omissions).text, is_html=False, omissions=omissions)

    def sent(self) -> str:
        (ticks,) = struct.unpack("<Q", self._fixed.get(_SENT, bytes(8)))
        return (_EPOCH + timedelta(microseconds=ticks // 10)).strftime("%Y-%m-%d %H:%M UTC") if ticks else ""

    def attachments(self) -> Iterator["_Properties"]:
        for folder in self._attachment_folders():
            yield _Properties(self._streams, folder, self._encoding)

    def message(self) -> "_Properties | None":
        """The message that an attachment is; None if it is a file."""
        folder = (*self._folder, _MESSAGE)
        return _Properties(self._streams, folder) if folder in self._streams.storages else None

    @cached_property
    def _fixed(self) -> dict[bytes, bytes]:
        """Values of fixed size, eight bytes each, by type and number."""
        listed = self._stream("__properties_version1.0")
        header_bytes = _INNER_HEADER_BYTES if self._folder else _HEADER_BYTES
        places = range(header_bytes, len(listed) - _ENTRY_BYTES + 1, _ENTRY_BYTES)
        return {listed[place : place + 4]: listed[place + 8 : place + 16] for place in places}

    @cached_property
    def _encoding(self) -> str:
        """The encoding of 8-bit text: as the message says, else that of all its words and its files' names together, as
        of a text file."""
        if self._known_encoding:
            return self._known_encoding
        names = [
            self._streams.read("/".join((*folder, f"__substg1.0_{number}{_CODE_PAGE}")))
            for folder in islice(self._attachment_folders(), MAX_ATTACHMENTS)
            for number in _FILE_NAMES
        ]
        words = (self.binary(number, _CODE_PAGE) for number in (_SUBJECT, _TEXT, _HTML, _SENDER, _TO, _CC))
        parts = (*words, self.binary(_HTML), *names)
        narrow = b"\n".join(part for part in parts if part.decode(errors="ignore").encode() != part)  # no UTF-8
        named = self._code_page(_TEXT_CODE_PAGE) or self._code_page(_HTML_CODE_PAGE)
        if named == _WESTERN and has_wide_words(narrow):
            return guess_encoding(narrow) or named
        return named or guessed_encoding(narrow)

    def _code_page(self, property_: bytes) -> str | None:
        """The encoding that a property names; none for one that Python does not know, such as UTF-16's number."""
        with suppress(LookupError):
            return codecs.lookup(code_page(int.from_bytes(self._fixed.get(property_, b"")[:4], "little"))).name
        return None

    def _attachment_folders(self) -> Iterator[tuple[str, ...]]:
        for folder in self._streams.storages:
            if folder[-1].startswith("__attach_version1.0_") and folder[:-1] == self._folder:
                yield folder

    def _stream(self, name: str) -> bytes:
        return self._streams.read("/".join((*self._folder, name)))


def _mail(message: _Properties, depth: int, omissions: Omissions) -> Mail:
    if depth > _MAX_DEPTH:
        raise Rejected("messages are nested too deeply in it: save the innermost one and upload that")
    sender, address = message.text(_SENDER), message.text(_ADDRESS)
    headers = {
        "From": f"{sender} <{address}>" if address and address != sender else sender,
        "To": message.text(_TO),
        "Cc": message.text(_CC),
        "Date": message.sent(),
    }
    mail = Mail(message.text(_SUBJECT), headers)
    mail.bodies.append(message.words(Omissions(keeps_hidden=omissions.keeps_hidden)))
    for attachment in message.attachments():
        name = next(filter(None, map(attachment.text, _FILE_NAMES)), "")
        if inner := attachment.message():
            inside = _mail(inner, depth + 1, omissions)
            attach(mail, file_name(inside.subject or name), written(as_eml(inside)))
        else:
            attach(mail, name, attachment.binary(_DATA))
    return mail


def decompress_rtf(body: bytes) -> bytes:
    """The RTF of a body. Raises ValueError for one that is damaged, struct.error or IndexError for one that is cut
    short.

    Each control byte says, from its lowest bit on, whether a byte follows or a place in the window with a length. The
    place where the window is written next ends the text.
    """
    size, raw_size, kind, checksum = _HEAD.unpack_from(body)
    if kind == int.from_bytes(_PLAIN, "little"):
        return body[_HEAD.size : _HEAD.size + raw_size]
    packed = body[_HEAD.size : size + 4]
    if kind != int.from_bytes(_COMPRESSED, "little") or zlib.crc32(packed, 0xFFFFFFFF) ^ 0xFFFFFFFF != checksum:
        raise ValueError("no compressed RTF, or damaged")
    out = bytearray(_BEGINNING)
    at = 0
    while True:
        control, at = packed[at], at + 1
        for bit in range(8):
            if not control >> bit & 1:
                out.append(packed[at])
                at += 1
                continue
            place, length = packed[at] << 4 | packed[at + 1] >> 4, (packed[at + 1] & 15) + 2
            at += 2
            back = (len(out) - place) % _WINDOW
            if not back:
                return bytes(out[len(_BEGINNING) :])
            if back > len(out):
                raise ValueError("a place that nothing was written to")
            start = len(out) - back
            for number in range(start, start + length):  # it may go on into what it writes
                out.append(out[number])
