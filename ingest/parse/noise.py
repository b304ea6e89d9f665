"""Tell text from noise: characters that no font shows, rows of signs, bytes written as letters."""

import re
from collections import Counter
from math import log2

_LEAST_CHARS, _LEAST_ENCODED = 200, 1_000  # a key may be all that a file holds
_SLICES, _SLICE_CHARS = 20, 50_000
_UNREADABLE = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
_MOST_UNREADABLE, _LEAST_ALPHANUMERIC = 1 / 3, 0.02
_WORD = re.compile(r"(?<![A-Za-z])(?:[A-Z]?[a-z]{2,}|[A-Z]{3,})(?![A-Za-z])|\d+")
_LEAST_WORDS, _MOST_BITS = 0.25, 5.75
"""A character of prose has 4 to 5 bits, of source code at most 5.5, of base64 6, of random signs of ASCII 6.5."""


def noise_in(text: str) -> str:
    """The reason why a text is mostly noise; empty for any that holds words or numbers, and for short ones."""
    visible = "".join(_sample(text).split())
    if len(visible) < _LEAST_CHARS:
        return ""
    counts = Counter(visible)
    if sum(n for c, n in counts.items() if _UNREADABLE.match(c)) > len(visible) * _MOST_UNREADABLE:
        return "most of its characters cannot be read: save it again with its fonts, or as UTF-8"
    num_in_words = sum(n for c, n in counts.items() if c.isalnum() or c > "\x7f")  # emoji are words, too
    if num_in_words < len(visible) * _LEAST_ALPHANUMERIC:
        return "it holds signs and almost no words"
    if len(visible) >= _LEAST_ENCODED and visible.isascii() and _bits(counts) > _MOST_BITS:
        num_in_words = sum(map(len, _WORD.findall(visible)))
        if num_in_words < len(visible) * _LEAST_WORDS:
            return "it is encoded or encrypted: decode it and upload the result"
    return ""


def _sample(text: str) -> str:
    if len(text) <= _SLICES * _SLICE_CHARS:
        return text
    starts = range(0, len(text), len(text) // _SLICES)
    return " ".join(text[start : start + _SLICE_CHARS] for start in starts)


def _bits(counts: Counter[str]) -> float:
    """The entropy of a character."""
    total = counts.total()
    return -sum(count / total * log2(count / total) for count in counts.values())
