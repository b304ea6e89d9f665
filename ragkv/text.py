"""Text: normal forms of Unicode, clean characters of documents and questions, names that users give, and counts.

`scrub` decides about single characters and is safe on any piece of text; `tidy` makes whole texts uniform. Every
format of documents passes through both before an offset is taken, and every question through `clean_question`.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

from ragkv.errors import Rejected
from ragkv.ids import is_id, runs

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


MAX_MARKS = 30

# Searching for the marks themselves takes fifty times as long as for their neighbourhood.
_MARKS = "".join(chr(c) for c in range(0x300, 0x1F000) if unicodedata.combining(chr(c)))
_MARK_RUN = re.compile(f"[{_MARKS}][{_MARKS}]{{{MAX_MARKS},}}")
_MAYBE_MARK_RUN = re.compile(f"[\u0300-\U0001efff]{{{MAX_MARKS + 1}}}")


def normalised(form: Form, text: str) -> str:
    """The text in a normal form, at most MAX_MARKS combining marks in a row, in linear time.

    Normalisation takes quadratic time in the length of a run of marks, and holds the interpreter: runs are cut where
    UAX #15 cuts them ("Stream-Safe Text Format").
    """
    if text.isascii():
        return text
    if _MAYBE_MARK_RUN.search(text):
        text = _MARK_RUN.sub(lambda run: run[0][:MAX_MARKS], text)
    return unicodedata.normalize(form, text)


# Kept: \t and \n. Gone: other control characters, soft hyphen, zero width space, word joiner and its invisible
# relatives, bidirectional overrides and isolates (they show text in an order that it does not have), interlinear
# marks, byte order mark, surrogates, noncharacters, tags (text that no reader sees but a model does).
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\u00ad\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)
_TERMINAL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\(B)")
"""Colours and moves of the cursor, as in the logs of programs that write to a terminal."""
_NEWLINE = re.compile("\r\n?|[\x0b\x0c\u2028\u2029]")
# C1 codes are never meant as controls: they are Windows-1252 quotes and dashes under a wrong label (as in HTML5).
_C1 = re.compile("[\x80-\x9f]")
_SPACE = re.compile("[\u00a0\u2007\u202f]")
PRESENTATION_FORMS = re.compile("[\ufb00-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc]+")
"""Ligatures and shaped Arabic, which stand for ordinary letters."""
_FULL_WIDTH = "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
# Signs of full width are ordinary Chinese and Japanese punctuation, except within a name of such letters or digits.
_COMPATIBLE = re.compile(f"[{_FULL_WIDTH}](?:[\uff01-\uff5e]*[{_FULL_WIDTH}])?|{PRESENTATION_FORMS.pattern}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n{3,}")


def scrub(text: str) -> str:
    """Remove unwanted characters, and make line ends and spaces uniform. Keeps blank lines and indentation."""
    if "\x1b" in text:
        text = _TERMINAL.sub("", text)
    text = _C1.sub(lambda match: match[0].encode("latin-1").decode("cp1252", errors="ignore"), text)
    return _SPACE.sub(" ", _UNWANTED.sub("", _NEWLINE.sub("\n", text)))


def is_scrubbed(text: str) -> bool:
    """Whether the text has no unwanted character."""
    return not (_UNWANTED.search(text) or _NEWLINE.search(text))


def tidy(text: str) -> str:
    """Compose characters (NFC), strip spaces at line ends, and reduce blank lines to one in a row and none at either
    end."""
    lines = map(str.rstrip, normalised("NFC", text).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def clean_question(text: str) -> str:
    """A question or another turn of a conversation in the characters that documents have. Text that was copied from a
    page holds what no reader sees: soft hyphens, zero width spaces, ligatures, letters of full width.

    What is not valid UTF-8 (a command's arguments may be any bytes) stays as it is: it is refused, not mended."""
    if _SURROGATE.search(text):
        return text
    return tidy(scrub(_COMPATIBLE.sub(lambda match: normalised("NFKC", match[0]), text)))


MAX_NAME_CHARS = 200
MAX_FILE_NAME_CHARS = 500


def one_spelling(name: str) -> str:
    """The name as it is stored and found: in NFC, without space around it."""
    return normalised("NFC", name).strip()


def clean_name(name: str) -> str:
    """The name in one spelling.

    Raises Rejected unless it has 1 to MAX_NAME_CHARS printable characters. One that reads like an id would be taken for
    that id, so it is refused too.
    """
    cleaned = one_spelling(name)
    if not 0 < len(cleaned) <= MAX_NAME_CHARS or not cleaned.isprintable():
        raise Rejected(f"a name must have 1 to {MAX_NAME_CHARS} printable characters")
    if is_id(cleaned):
        raise Rejected("a name must not look like an id: 32 hexadecimal digits")
    return cleaned


def clean_file_name(name: str) -> str:
    """A file name fit to show: its last part, printable and of bounded length."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:MAX_FILE_NAME_CHARS] or "unnamed"


def storable(text: str) -> str:
    """The text without the one character that PostgreSQL refuses. It is part of no name, so nothing is found by it."""
    return text.replace("\x00", "\ufffd")


def ranges(codes: Iterable[int]) -> str:
    """Characters, ascending, as the inside of a character class."""
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs(codes))


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 document, 2 documents."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


PageName = Literal["page", "slide", "sheet"]

PAGE_NAMES: dict[str, PageName] = {
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "slide",
    "application/vnd.oasis.opendocument.presentation": "slide",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "sheet",
    "application/vnd.oasis.opendocument.spreadsheet": "sheet",
}
"""By media type."""


def page_label(media_type: str, number: int | None) -> str | None:
    """A page as a reader calls it, such as "slide 3". None where the format has no pages."""
    return None if number is None else f"{PAGE_NAMES.get(media_type, 'page')} {number}"


def escaped(text: str) -> str:
    """The text for one line of a terminal: what is not printable, such as control sequences, as Python writes it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
