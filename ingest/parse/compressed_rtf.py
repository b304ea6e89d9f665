"""Decompress RTF as messages of Outlook keep it ([MS-OXRTFCP])."""

import struct
import zlib

_HEAD = struct.Struct("<IIII")
_COMPRESSED, _PLAIN = b"LZFu", b"MELA"
_WINDOW = 4096
_BEGINNING = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans SerifSymbol"
    rb"ArialTimes New RomanCourier{\colortbl\red0\green0\blue0" + b"\r\n" + rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
"""The window's content before the first byte."""


def decompress_rtf(body: bytes) -> bytes:
    """The RTF of a body. Raises ValueError for one that is damaged, struct.error or IndexError for one that is cut
    short."""
    size, raw_size, kind, checksum = _HEAD.unpack_from(body)
    if kind == int.from_bytes(_PLAIN, "little"):
        return body[_HEAD.size : _HEAD.size + raw_size]
    packed = body[_HEAD.size : size + 4]
    if kind != int.from_bytes(_COMPRESSED, "little") or zlib.crc32(packed, 0xFFFFFFFF) ^ 0xFFFFFFFF != checksum:
        raise ValueError("no compressed RTF, or damaged")
    return _expanded(packed)


def _expanded(packed: bytes) -> bytes:
    """Each control byte says, from its lowest bit on, whether a byte follows or a place in the window with a length.
    The place where the window is written next ends the text."""
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
