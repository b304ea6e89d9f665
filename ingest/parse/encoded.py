"""Leave out pictures and other files that stand in a text as base64 or in `data:` addresses."""

import re

from ingest.parse.encoding import decode
from ingest.parse.omissions import Omissions
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
_PADDING = re.compile("={1,2}")
_LAST_LINE_GROUP = 4


def read_source(body: bytes, omissions: Omissions) -> str:
    """The text of a file that is read as it stands."""
    return tidy(without_encoded(scrub(decode(body)), omissions))


def without_encoded(text: str, omissions: Omissions) -> str:
    """The text without `data:` addresses and runs of base64, on one line or broken into many; both are counted. Words,
    hashes and keys of a few hundred characters stay."""
    return _without_runs(_DATA_ADDRESS.sub(lambda match: _left_out(match[0], omissions), text), omissions)


def _left_out(encoded: str, omissions: Omissions) -> str:
    omissions.encoded(len(encoded))
    return ""


def _without_runs(text: str, omissions: Omissions) -> str:
    pieces: list[str] = []
    end = 0
    for match in _LONG_WORD.finditer(text):
        if match.end() - match.start() >= _LEAST_CHARS and _is_base64(match[0]):
            pieces.append(text[end : match.start()])
            end = _end_of_run(text, match.end())
            omissions.encoded(end - match.start())
    return "".join([*pieces, text[end:]])


def _is_base64(run: str) -> bool:
    """Whether small letters, capitals and digits are mixed, as in no word of a language, sequence or ruler."""
    sample = run[:_SAMPLE_CHARS]
    least = len(sample) * _LEAST_OF_EACH
    return all(sum(map(of_kind, sample)) >= least for of_kind in (str.islower, str.isupper, str.isdigit))


def _end_of_run(text: str, end: int) -> int:
    """The end of a run with its last line, which is shorter, and the signs that fill it up."""
    if padding := _PADDING.match(text, end):
        return padding.end()
    last = _LAST_LINE.match(text, end)
    is_whole = last is not None and len(last[1]) % _LAST_LINE_GROUP == 0
    return last.end() if last is not None and is_whole and not last[1].isalpha() else end
