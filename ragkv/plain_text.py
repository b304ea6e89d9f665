"""Normalisation of characters: unwanted ones are removed, the rest brought into one form.

`scrub` decides about single characters and is safe on any piece of text; `tidy` makes whole texts uniform. Every
format of documents passes through both before an offset is taken, and every question through `clean_question`.
"""

import re

from ragkv.normal_form import normalised

# Kept: \t and \n. Gone: other control characters, soft hyphen, zero width space, word joiner and its invisible
# relatives, bidirectional overrides and isolates (they show text in an order that it does not have), interlinear
# marks, byte order mark, surrogates, noncharacters, tags (text that no reader sees but a model does).
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\u00ad\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)
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
