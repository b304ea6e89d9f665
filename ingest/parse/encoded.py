"""Parts of a text that are none: files written as base64 or in `data:` addresses, which are left out, and noise."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate, chain
from math import log2

from ingest.parse.encoding import decode
from ingest.parse.parsed import Omissions, Parsed
from ragkv.text import scrub, tidy

_LEAST_CHARS = 1_000
"""Shorter runs may be keys, certificates' fingerprints or tokens that somebody searches for."""
_LEAST_OF_EACH = 0.02
_SAMPLE_CHARS = 10_000
_CHARS = "[A-Za-z0-9+/_-]"
_KIND = r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:;[\w.+-]{1,40}=[\w.+\"-]{1,40}){0,5}"
# With the label of a reference in Markdown, which is nothing without its address.
_DATA_ADDRESS = re.compile(
    rf"(?:^ {{0,3}}\[[^\]\n]{{1,200}}\]:[ ]?)?<?\bdata:(?:{_KIND})?"
    r"(?:;base64,[A-Za-z0-9+/_%-]{64,}={0,2}|,(?:[^\s\"()<>\\]|\([^\s\"()<>]{0,200}\)){64,})>?",
    re.MULTILINE | re.IGNORECASE,
)
_LONG_WORD = re.compile(rf"(?<![A-Za-z0-9+/_=-]){_CHARS}{{60,}}+(?:[ \t]*[ \n][ \t]*{_CHARS}{{60,}}+)*+")
_LAST_LINE = re.compile(rf"[ \t]*[ \n][ \t]*({_CHARS}{{2,59}}={{0,2}})(?![^\s\"'<])")
_AS_RUN = bytes(ord("A") if re.match(_CHARS, chr(byte)) else ord(" ") for byte in range(256))
_RUN = b"A" * 60
_PADDING = re.compile("={1,2}")
_LAST_LINE_GROUP = 4
_LEAST_VISIBLE, _LEAST_ENCODED = 200, 1_000  # a key may be all that a file holds
_SLICES, _SLICE_CHARS = 20, 50_000
_UNREADABLE = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
_MOST_UNREADABLE, _LEAST_ALPHANUMERIC = 1 / 3, 0.02
_WORD = re.compile(r"(?<![A-Za-z])(?:[A-Z]?[a-z]{2,}|[A-Z]{3,})(?![A-Za-z])|\d+")
_LEAST_WORDS, _MOST_BITS = 0.25, 5.75
"""A character of prose has 4 to 5 bits, of source code at most 5.5, of base64 6, of random signs of ASCII 6.5."""


def read_source(body: bytes, omissions: Omissions) -> str:
    """The text of a file that is read as it stands."""
    return tidy(without_encoded(scrub(decode(body)), omissions))


def without_encoded(text: str, omissions: Omissions) -> str:
    """The text without `data:` addresses and runs of base64, on one line or broken into many; both are counted. Words,
    hashes and keys of a few hundred characters stay."""
    return _without(text, list(_places(text)), omissions)


def _without(text: str, places: Sequence[tuple[int, int]], omissions: Omissions) -> str:
    omissions.encoded(sum(end - start for start, end in places))
    edges = [0, *chain.from_iterable(places), len(text)]
    return "".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)) if places else text


def leave_out_encoded(parsed: Parsed, omissions: Omissions) -> Parsed:
    """The document without them, whatever its format."""
    places = list(_places(parsed.text))
    if not places:
        return parsed
    ends = [end for _, end in places]
    lengths = [*accumulate((end - start for start, end in places), initial=0)]

    def moved(place: int) -> int:
        number = bisect_right(ends, place)
        inside = max(0, place - places[number][0]) if number < len(places) else 0
        return place - lengths[number] - inside

    return replace(
        parsed,
        text=_without(parsed.text, places, omissions),
        pages=tuple(replace(page, start=moved(page.start), end=moved(page.end)) for page in parsed.pages),
        sections=tuple(replace(part, start=moved(part.start), body=moved(part.body)) for part in parsed.sections),
    )


def _places(text: str) -> Iterator[tuple[int, int]]:
    """From where to where encoded files stand in a text."""
    plain = text.encode("ascii", "replace")  # searched first: the expressions take twenty times as long
    addresses = (match.span() for match in _DATA_ADDRESS.finditer(text if b"data:" in plain.lower() else ""))
    last = 0
    for start, end in merge(addresses, _runs(text) if _RUN in plain.translate(_AS_RUN) else ()):
        if start >= last:
            yield start, end
            last = end


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """From where to where base64 stands that is long enough, with its last line, which is shorter, and the signs that
    fill it up. Small letters, capitals and digits are mixed in it, as in no word of a language, sequence or ruler."""
    for run in _LONG_WORD.finditer(text):
        sample = run[0][:_SAMPLE_CHARS]
        num_each = (sum(map(is_of_kind, sample)) for is_of_kind in (str.islower, str.isupper, str.isdigit))
        if len(run[0]) < _LEAST_CHARS or min(num_each) < len(sample) * _LEAST_OF_EACH:
            continue
        end = run.end()
        if padding := _PADDING.match(text, end):
            end = padding.end()
        elif (line := _LAST_LINE.match(text, end)) and len(line[1]) % _LAST_LINE_GROUP == 0 and not line[1].isalpha():
            end = line.end()
        yield run.start(), end


def noise_in(text: str) -> str:
    """The reason why a text is mostly noise; empty for any that holds words or numbers, and for short ones."""
    if len(text) > _SLICES * _SLICE_CHARS:
        starts = range(0, len(text), len(text) // _SLICES)
        text = " ".join(text[start : start + _SLICE_CHARS] for start in starts)
    visible = "".join(text.split())
    if len(visible) < _LEAST_VISIBLE:
        return ""
    counts = Counter(visible)
    if sum(n for c, n in counts.items() if _UNREADABLE.match(c)) > len(visible) * _MOST_UNREADABLE:
        return "most of its characters cannot be read: save it again with its fonts, or as UTF-8"
    num_in_words = sum(n for c, n in counts.items() if c.isalnum() or c > "\x7f")  # emoji are words, too
    if num_in_words < len(visible) * _LEAST_ALPHANUMERIC:
        return "it holds signs and almost no words"
    shares = [count / len(visible) for count in counts.values()]
    entropy = -sum(share * log2(share) for share in shares)
    if len(visible) >= _LEAST_ENCODED and visible.isascii() and entropy > _MOST_BITS:
        num_in_words = sum(map(len, _WORD.findall(visible)))
        if num_in_words < len(visible) * _LEAST_WORDS:
            return "it is encoded or encrypted: decode it and upload the result"
    return ""
