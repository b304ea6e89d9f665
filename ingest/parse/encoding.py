"""Decode the bytes of a text file: by its byte order mark, by escape sequences, as UTF-8, or by a cautious guess."""

import codecs

from ingest.parse.guess import guess_encoding, has_wide_words
from ingest.parse.seven_bit import decode_seven_bit
from ragkv.errors import Rejected

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAVE_AS_UTF8 = "open it in an editor and save it as UTF-8"
# Python's own codecs, which no page uses: they take quadratic time or transform text.
_NOT_FOR_PAGES = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}
_SAMPLE_BYTES = 64 * 1024


def decode(body: bytes, declared: str | None = None) -> str:
    """The characters of a text file. A byte order mark goes before escape sequences (ISO-2022-JP and others in seven
    bits), those before UTF-8, that before the `declared` encoding, then a guess.

    Raises Rejected when the encoding is in doubt: a wrong guess would silently fill the index with garbage.
    """
    if encoding := sure_encoding(body):
        return body.decode(encoding, errors="replace")
    if (text := decode_seven_bit(body, declared)) is not None:
        return text
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_declared(body, declared) or _damaged_utf8(body) or _guessed(body)


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


def _decode_declared(body: bytes, declared: str | None) -> str | None:
    if declared is None:
        return None
    try:
        return None if codecs.lookup(declared).name in _NOT_FOR_PAGES else body.decode(declared)
    except (LookupError, UnicodeDecodeError):
        return None


def _damaged_utf8(body: bytes) -> str | None:
    """Decode UTF-8 with a few broken places, such as a cut in the middle of a character."""
    text = body.decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    wide = sum(1 for c in text[:_SAMPLE_BYTES] if c > "\x7f" and c != "\ufffd")
    return text if broken * 10 <= wide or (broken == 1 and wide) else None


def _guessed(body: bytes) -> str:
    """Decode by a guess: Windows-1252 where nearly all is ASCII and the rest stands alone, as accents do, else by
    script.

    A few bytes beyond ASCII side by side that no script explains are Windows-1252: dashes in a row, or a list of
    letters.
    """
    num_wide = len(body) - len(body.translate(None, bytes(range(0x80, 0x100))))
    is_western = num_wide * 5 <= len(body)
    if is_western and not has_wide_words(body):
        return _western(body)
    if encoding := guess_encoding(body):
        try:
            return body.decode(encoding)
        except UnicodeDecodeError:
            raise Rejected(f"its text starts in {encoding} but does not continue so: {_SAVE_AS_UTF8}") from None
    if is_western:
        return _western(body)
    raise Rejected(f"its text encoding cannot be determined: {_SAVE_AS_UTF8}")


def _western(body: bytes) -> str:
    try:
        return body.decode("cp1252")
    except UnicodeDecodeError:
        raise Rejected(f"it is neither UTF-8 nor Windows-1252 text: {_SAVE_AS_UTF8}") from None
