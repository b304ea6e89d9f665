"""Parsers for reStructuredText and Org: the text is the source itself but for its tables,
headings become sections."""

import re
from collections.abc import Sequence

from ingest.parse.aligned import read_simple
from ingest.parse.encoded import read_source
from ingest.parse.grids import read_grid
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ingest.parse.text_tables import Reader, blocks_of, read_org_table, with_blocks

_UNDERLINED = re.compile(r"^[ ]?(\S[^\n]{0,300})\n([!-/:-@\[-`{-~])(\2*)$", re.MULTILINE)
_ROLE = re.compile(r":[a-z:+-]+:(?=`)|[`*]+|\\")
_ORG_HEADING = re.compile(r"^(\*+) +(?:(?:TODO|DONE) +)?(?:\[#\w\] +)?(\S[^\n]*)$", re.MULTILINE)
_ORG_TAGS = re.compile(r"\s:[\w@#%:]+:$")
_ORG_TITLE = re.compile(r"^#\+title:([^\n]+)", re.MULTILINE | re.IGNORECASE)
_MAX_LEVEL = 100


def read_rst(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines that are underlined in full are headings; a style of underline ranks as it is first used, as does the same
    with a line above."""
    text = read_source(body, omissions)
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
    return _parsed(text, sections, (read_grid, read_simple), "", fallback_title, Format.RST)


def read_org(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines that begin with stars are headings, without their keywords, priorities and tags."""
    text = read_source(body, omissions)
    headings = ((match, one_line(_ORG_TAGS.sub("", match[2]))) for match in _ORG_HEADING.finditer(text))
    sections = [
        Section(match.start(), match.end(), title, min(len(match[1]), _MAX_LEVEL)) for match, title in headings if title
    ]
    named = _ORG_TITLE.search(text)
    tables = (read_grid, read_org_table)
    return _parsed(text, sections, tables, one_line(named[1]) if named else "", fallback_title, Format.ORG)


def _parsed(
    source: str, headings: Sequence[Section], tables: Sequence[Reader], named: str, fallback_title: str, format_: Format
) -> Parsed:
    text, sections = with_blocks(source, list(blocks_of(source.split("\n"), tables)), headings)
    title = named or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=format_.value, sections=sections)
