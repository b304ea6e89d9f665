"""Decode 7-bit text that is not ASCII: ISO-2022-JP and ISO-2022-KR, detected by their escape sequences, and HZ.

Old mail in Japanese, Korean and Chinese is written so. All of it is valid UTF-8, too, as which it would be garbage.
"""

import codecs
import re

from ingest.parse.guess import guess_encoding

_ESCAPE_JP = re.compile(rb"\x1b(?:\$[@B]|\$\([DOPQ]|\(I)")
_KOREAN = b"\x1b$)C"  # stands once, at the beginning of a line before the first Korean word
_TO_JIS_X_0213 = re.compile(rb"\x1b\$[@B]")
_JIS_X_0213 = b"\x1b$(Q"
_HZ_RUN = re.compile(rb"~\{[^~\s]")
_DECLARED = ("iso2022_", "hz", "utf-7")


def decode_seven_bit(body: bytes, declared: str | None) -> str | None:
    """The characters of a text in seven bits, by its escape sequences or as `declared`; None for all other text."""
    if not body.isascii():
        return None
    if _ESCAPE_JP.search(body):
        return _japanese(body)
    if is_korean(body):
        return _whole(body, "iso2022_kr")
    if declared and (encoding := _known(declared)):
        return _whole(body, encoding)
    if _HZ_RUN.search(body) and (text := _whole(body, "hz")) and guess_encoding(text.encode("gb18030")) == "gb18030":
        return text
    return None


def is_korean(body: bytes) -> bool:
    """Whether it is ISO-2022-KR, whose shifts between alphabets are control characters."""
    return _KOREAN in body and body.isascii()


def _known(declared: str) -> str | None:
    try:
        name = codecs.lookup(declared).name
    except (LookupError, ValueError):
        return None
    return name if name.startswith(_DECLARED) else None


def _whole(body: bytes, encoding: str) -> str | None:
    try:
        return body.decode(encoding)
    except UnicodeDecodeError:
        return None


def _japanese(body: bytes) -> str | None:
    """Decode line by line: each begins in ASCII (RFC 1468). A few broken places are replaced, as in UTF-8."""
    text = "".join(map(_japanese_line, body.splitlines(keepends=True)))
    broken = text.count("\ufffd")
    return text if broken * 10 <= sum(1 for c in text if c > "\x7f") else None


def _japanese_line(line: bytes) -> str:
    """Standard characters and half-width kana; else those that Windows and JIS X 0213 added, such as ①; else those of
    Chinese and Korean in ISO-2022-JP-2."""
    if b"\x1b" not in line:
        return line.decode("ascii")
    added = _TO_JIS_X_0213.sub(_JIS_X_0213, line)
    candidates = ((line, "iso2022_jp_ext"), (added, "iso2022_jp_2004"), (line, "iso2022_jp_2"))
    texts = (_whole(bytes_, encoding) for bytes_, encoding in candidates)
    decoded = next((text for text in texts if text is not None), None)
    return line.decode("iso2022_jp_ext", "replace") if decoded is None else decoded
