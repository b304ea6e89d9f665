"""Decode the bytes of a text file: by its byte order mark, by escape sequences, as UTF-8, or by a cautious guess.

Old mail in Japanese, Korean and Chinese is in seven bits (ISO-2022-JP, ISO-2022-KR, HZ). All of it is valid UTF-8, too,
as which it would be garbage.
"""

import codecs
import re
from contextlib import suppress

from ingest.parse.guess import guess_encoding, has_wide_words, num_wide
from ragkv.errors import Rejected

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN, _TURKISH = "cp1252", "cp1254"
_SAVE_AS_UTF8 = "open it in an editor and save it as UTF-8"
# Python's own codecs, which no page uses: they take quadratic time or transform text.
_NOT_FOR_PAGES = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}
_SAMPLE_BYTES = 64 * 1024
_LABELS = {
    "windows-31j": "cp932", "windows-874": "cp874", "windows-949": "cp949", "iso-8859-6-i": "iso8859_6",
    "iso-8859-8-i": "iso8859_8", "koi8-ru": "koi8_u", "cn-big5": "big5", "gb_2312-80": "gb2312", "ksc5601": "euc_kr",
    "ks_c_5601-1989": "euc_kr",
}  # fmt: skip
"""Names of encodings that Python does not know, even without `x-` before them."""
_AS_READ = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"}
"""Encodings that are read as wider ones, as browsers do (WHATWG Encoding Standard): programs write these under the
narrower name."""
_CODE_PAGES = {
    20127: "ascii", 20866: "koi8_r", 20936: "gb18030", 21866: "koi8_u", 50220: "iso2022_jp", 50221: "iso2022_jp",
    50222: "iso2022_jp", 50225: "iso2022_kr", 51932: "euc_jp", 51949: "euc_kr", 52936: "hz", 54936: "gb18030",
    65000: "utf-7", **{28590 + part: f"iso8859_{part}" for part in range(1, 17)},
    10000: "mac_roman", 10001: "cp932", 10002: "big5", 10003: "euc_kr", 10004: "mac_arabic", 10006: "mac_greek",
    10007: "mac_cyrillic", 10008: "gb2312", 10010: "mac_romanian", 10017: "mac_cyrillic", 10029: "mac_latin2",
    10079: "mac_iceland", 10081: "mac_turkish", 10082: "mac_croatian",
}  # fmt: skip
"""Numbers of code pages that Python does not know as `cp` with the number."""
_ESCAPE_JP = re.compile(rb"\x1b(?:\$[@B]|\$\([DOPQ]|\(I)")
_KOREAN = b"\x1b$)C"  # stands once, at the beginning of a line before the first Korean word
_TO_JIS_X_0213 = re.compile(rb"\x1b\$[@B]")
_JIS_X_0213 = b"\x1b$(Q"
_HZ_RUN = re.compile(rb"~\{[^~\s]")
_SIGN_IN_WORD = re.compile("(?<=[a-zß-ÿ])(?:[¹³¿º£±¶¼¡¢¤§¨ª¯‚„”ˆ‡‰](?=[a-zß-ÿ])|[ŠŒŽŸ])")
_DECLARED = ("iso2022_", "hz", "utf-7")


def decode(body: bytes, declared: str | None = None) -> str:
    """The characters of a text file. A byte order mark goes before escape sequences (ISO-2022-JP and others in seven
    bits), those before UTF-8, that before the `declared` encoding, then a guess.

    Raises Rejected when the encoding is in doubt: a wrong guess would silently fill the index with garbage.
    """
    if encoding := sure_encoding(body):
        return body.decode(encoding, errors="replace")
    if (text := _decode_seven_bit(body, declared)) is not None:
        return text
    with suppress(UnicodeDecodeError):
        return body.decode("utf-8")
    if text := _decode_declared(body, declared):
        return text
    # UTF-8 with a few broken places, such as a cut in the middle of a character, goes before a guess.
    text = body.decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    wide = sum(1 for c in text[:_SAMPLE_BYTES] if c > "\x7f" and c != "\ufffd")
    if broken * 10 <= wide or (broken == 1 and wide):
        return text
    encoding = guessed_encoding(body)
    try:
        return body.decode(encoding)
    except UnicodeDecodeError:
        reason = f"its text starts in {encoding} but does not continue in that encoding"
        if encoding == _WESTERN:
            reason = "it is neither UTF-8 nor Windows-1252 text"
        raise Rejected(f"{reason}: {_SAVE_AS_UTF8}") from None


def sure_encoding(body: bytes) -> str | None:
    """The encoding that a byte order mark or the pattern of zero bytes proves, else None."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return encoding
    sample = body[:_SAMPLE_BYTES]  # UTF-16 of Latin text has a zero in every other byte
    if not sample or sample.count(0) * 4 < len(sample):
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if even > 10 * odd:
        return "utf-16-be"
    return "utf-16-le" if odd > 10 * even else None


def code_page(number: int) -> str:
    """The encoding of a code page of Windows by its number; Python may not know it."""
    return _CODE_PAGES.get(number, f"cp{number}")


def _decode_declared(body: bytes, declared: str | None) -> str | None:
    if declared is None:
        return None
    label = declared.strip().lower()
    with suppress(LookupError, ValueError):
        name = codecs.lookup(_LABELS.get(label, label.removeprefix("x-"))).name
        for encoding in (_AS_READ.get(name, name), name) if name not in _NOT_FOR_PAGES else ():
            with suppress(UnicodeDecodeError):
                return body.decode(encoding)
    return None


def guessed_encoding(body: bytes) -> str:
    """The encoding of a text by a guess: Windows-1252 (or 1254) where nearly all is ASCII and the rest stands alone, as
    accents do, else by script. Raises Rejected in doubt.

    A few bytes beyond ASCII side by side that no script explains are Windows-1252: dashes in a row, or a list of
    letters.
    """
    wide = num_wide(body)
    is_western = wide * 5 <= len(body)
    encoding = None if is_western and not has_wide_words(body) else guess_encoding(body)
    # Signs, or capitals, within words of small letters: text of central and eastern Europe, of DOS or of old Macs.
    western = body.decode(_WESTERN, "replace") if encoding is None else ""
    num_signs = len(_SIGN_IN_WORD.findall(western))
    if encoding is None and (not is_western or (num_signs > 1 and num_signs * 10 > wide)):
        raise Rejected(f"its text encoding cannot be determined: {_SAVE_AS_UTF8}")
    # Windows-1254 has other letters in place of some that Icelandic alone has, which has more accents.
    letters = set(western)
    is_turkish = "ý" in letters and not letters.isdisjoint("ðþ") and letters.isdisjoint("áíóúæÁÍÓÚÆ")
    return encoding or (_TURKISH if is_turkish else _WESTERN)


def _decode_seven_bit(body: bytes, declared: str | None) -> str | None:
    """The characters of a text in seven bits, by its escape sequences or as `declared`; None for all other text."""
    if not body.isascii():
        return None
    if _ESCAPE_JP.search(body):
        # Each line begins in ASCII (RFC 1468). A few broken places are replaced, as in UTF-8.
        text = "".join(map(_japanese_line, body.splitlines(keepends=True)))
        return text if text.count("\ufffd") * 10 <= sum(1 for c in text if c > "\x7f") else None
    if is_korean(body):
        return _whole(body, "iso2022_kr")
    with suppress(LookupError, ValueError):
        if declared and (name := codecs.lookup(declared).name).startswith(_DECLARED):
            return _whole(body, name)
    chinese = _whole(body, "hz") if _HZ_RUN.search(body) else None
    return chinese if chinese and guess_encoding(chinese.encode("gb18030")) == "gb18030" else None


def is_korean(body: bytes) -> bool:
    """Whether it is ISO-2022-KR, whose shifts between alphabets are control characters."""
    return _KOREAN in body and body.isascii()


def _whole(body: bytes, encoding: str) -> str | None:
    try:
        return body.decode(encoding)
    except UnicodeDecodeError:
        return None


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
