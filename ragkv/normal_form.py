"""Unicode normalisation in linear time.

Normalisation takes quadratic time in the length of a run of combining marks, and holds the interpreter: runs are cut
where UAX #15 cuts them ("Stream-Safe Text Format").
"""

import re
import unicodedata
from typing import Literal

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

MAX_MARKS = 30

# Searching for the marks themselves takes fifty times as long as for their neighbourhood.
_MARKS = "".join(chr(c) for c in range(0x300, 0x1F000) if unicodedata.combining(chr(c)))
_MARK_RUN = re.compile(f"[{_MARKS}][{_MARKS}]{{{MAX_MARKS},}}")
_MAYBE_MARK_RUN = re.compile(f"[\u0300-\U0001efff]{{{MAX_MARKS + 1}}}")


def normalised(form: Form, text: str) -> str:
    """The text in a normal form, at most MAX_MARKS combining marks in a row."""
    if text.isascii():
        return text
    if _MAYBE_MARK_RUN.search(text):
        text = _MARK_RUN.sub(lambda run: run[0][:MAX_MARKS], text)
    return unicodedata.normalize(form, text)
