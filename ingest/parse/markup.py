"""Parsers for reStructuredText and Org: the text is the source itself, headings become sections."""

import re

from ingest.parse.encoding import decode
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ragkv.text import scrub, tidy

_UNDERLINED = re.compile(r"^[ ]?(\S[^\n]{0,300})\n([!-/:-@\[-`{-~])(\2*)$", re.MULTILINE)
_ROLE = re.compile(r":[a-z:+-]+:(?=`)|[`*]+|\\")
_ORG_HEADING = re.compile(r"^(\*+) +(?:(?:TODO|DONE) +)?(?:\[#\w\] +)?(\S[^\n]*)$", re.MULTILINE)
_ORG_TAGS = re.compile(r"\s:[\w@#%:]+:$")
_ORG_TITLE = re.compile(r"^#\+title:([^\n]+)", re.MULTILINE | re.IGNORECASE)
_MAX_LEVEL = 100


def read_rst(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines that are underlined in full are headings; a style of underline ranks as it is first used, as does the same
    with a line above."""
    text = tidy(scrub(decode(body)))
    sections: list[Section] = []
    ranks: dict[tuple[str, bool], int] = {}
    for match in _UNDERLINED.finditer(text):
        title, mark, line = match[1].rstrip(), match[2], match[2] + match[3]
        words = one_line(_ROLE.sub("", title))
        if len(line) < len(title) or not any(map(str.isalnum, words)):
            continue
        earliest = sections[-1].body if sections else 0
        above = text.rfind("\n", 0, max(0, match.start() - 1)) + 1
        has_overline = above >= earliest and text[above : match.start()] == f"{line}\n"
        level = ranks.setdefault((mark, has_overline), len(ranks) + 1)
        sections.append(Section(above if has_overline else match.start(), match.end(), words, level))
    return _parsed(text, tuple(sections), None, fallback_title, Format.RST)


def read_org(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines that begin with stars are headings, without their keywords, priorities and tags."""
    text = tidy(scrub(decode(body)))
    headings = ((match, one_line(_ORG_TAGS.sub("", match[2]))) for match in _ORG_HEADING.finditer(text))
    sections = tuple(
        Section(match.start(), match.end(), title, min(len(match[1]), _MAX_LEVEL)) for match, title in headings if title
    )
    return _parsed(text, sections, _ORG_TITLE.search(text), fallback_title, Format.ORG)


def _parsed(
    text: str, sections: tuple[Section, ...], named: re.Match[str] | None, fallback_title: str, format_: Format
) -> Parsed:
    title = (one_line(named[1]) if named else "") or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=format_.value, sections=sections)
