"""Characters: what may stand in a document's text, and in which form.

`scrub` decides about single characters and is safe on any piece of text; `tidy` makes whole texts uniform. Every
format passes through both before an offset is taken.
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
# Codes that nobody means as controls: they are Windows-1252 quotes and dashes under a wrong label (as in HTML5).
_C1 = re.compile("[\x80-\x9f]")
_SPACE = re.compile("[\u00a0\u2007\u202f]")
_BLANK_LINES = re.compile(r"\n{3,}")


def scrub(text: str) -> str:
    """Text without unwanted characters, line feeds for line ends and ordinary spaces. Keeps blank lines and indentation."""
    text = _C1.sub(lambda found: found[0].encode("latin-1").decode("cp1252", errors="ignore"), text)
    return _SPACE.sub(" ", _UNWANTED.sub("", _NEWLINE.sub("\n", text)))


def is_scrubbed(text: str) -> bool:
    """Whether there is no unwanted character in it."""
    return not (_UNWANTED.search(text) or _NEWLINE.search(text))


def tidy(text: str) -> str:
    """NFC, no spaces at line ends, at most one blank line in a row, none at either end."""
    lines = map(str.rstrip, normalised("NFC", text).split("\n"))
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()
