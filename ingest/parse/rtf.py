"""Parser for RTF: its words, line by line, and its tables."""

import re
from itertools import groupby

from striprtf.striprtf import rtf_to_text, specialchars

from ingest.parse.composer import Composer
from ingest.parse.encoding import code_page
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed
from ingest.parse.raised import SIGNS, STARTS_WITH_NUMBER
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5}) ?")
_CELL = "|"
_TOKEN = re.compile(r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'[0-9a-f]{2}|\\[^a-z]|[{}]|[^\\{}]+", re.IGNORECASE)
_RAISED = {"super": SIGNS["sup"], "sub": SIGNS["sub"]}
_LEVEL = ("nosupersub", "plain")
_MINUS = ("8722", "8211")


def read_rtf(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Paragraphs and tables. RTF marks no headings; pictures, headers, footers and notes are left out."""
    encoding = "cp1252"
    if match := _CODE_PAGE.search(body[:4096]):  # the library takes any number for one that Python knows
        encoding = code_page(int(match[1]))
        body = body[: match.start()] + b"\\ansi " + body[match.end() :]
    try:
        text = rtf_to_text(_with_signs(body.decode(encoding, "replace")), encoding, errors="replace")
    except (LookupError, ValueError, TypeError, IndexError, OverflowError):
        raise Rejected(
            "the RTF file is damaged and cannot be read: open it in a word processor and save it again"
        ) from None
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")  # \u gives halves of characters
    composer = Composer()
    for is_row, lines in groupby(whole.split("\n"), key=lambda line: line.endswith(_CELL)):
        if is_row:
            composer.table(line.removesuffix(_CELL).split(_CELL) for line in lines)
        else:
            composer.block("\n".join(lines))
    return composer.parsed(fallback_title, Format.RTF)


def _with_signs(source: str) -> str:
    """The source with a sign before each superscript or subscript that begins with a number and follows a digit."""
    if not any(f"\\{word}" in source for word in _RAISED):
        return source
    pieces: list[str] = []
    outer: list[str] = []
    sign = sign_before = preceding = ""
    for token in _TOKEN.finditer(source):
        whole, word, number = token.group(0, 1, 2)
        if whole == "{":
            outer.append(sign)
        elif whole == "}":
            sign = outer.pop() if outer else ""
        elif word in _RAISED:
            sign = "" if number == "0" else _RAISED[word]
        elif word in _LEVEL:
            sign = ""
        elif words := _shown(whole, word, number):
            if sign and sign != sign_before and preceding.isdecimal() and STARTS_WITH_NUMBER.match(words):
                pieces.append(sign)
            sign_before, preceding = sign, words[-1]
        pieces.append(whole)
    return "".join(pieces)


def _shown(whole: str, word: str | None, number: str | None) -> str:
    """The characters that a token shows, as far as signs of numbers depend on them."""
    if word == "u" and number in _MINUS:
        return "-0"
    if word == "u" or word in specialchars:
        return " "
    if word is None:
        return " " if whole.startswith("\\") else whole.strip("\r\n")
    return ""
