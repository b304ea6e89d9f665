"""Page headers and footers."""

import re

FIELD = "\ufffc"
"""Stands for a field in the text of a header: a page number, a date, the name of the file."""
PAGE_NUMBER = re.compile(r"\b(NUM)?PAGES?\b")
"""The instruction of a field of Word or RTF that shows the number of a page, or of all pages."""
_MAX_WORDS_BESIDE = 2


def without_fields(text: str) -> str:
    """The words of a part of a header. Fields are left out; also the few words beside a field, such as those of
    `Page 3 of 10`."""
    words = text.replace(FIELD, " ")
    is_about_field = FIELD in text and len(words.split()) <= _MAX_WORDS_BESIDE and not any(map(str.isdigit, words))
    return "" if is_about_field or not any(map(str.isalnum, words)) else words


def line_without_fields(words: str) -> str:
    """The words of a line of a header, whose parts stand between tabs."""
    return " ".join(" ".join(map(without_fields, words.split("\t"))).split())
