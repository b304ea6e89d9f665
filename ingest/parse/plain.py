"""Parser for plain text. Only underlined lines are headings: a short line alone could be anything."""

import re

from ingest.parse.encoding import decode
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ragkv.text import scrub, tidy

_UNDERLINED = re.compile(r"^(\S[^\n]{0,200})\n([=\-~^#*])(\2{2,})(?:\n|\Z)", re.MULTILINE)


def read_plain(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """The text as it stands; lines underlined in full are headings, their ranks in the order of first use."""
    text = tidy(scrub(decode(body)))
    headings = [h for h in _UNDERLINED.finditer(text) if len(h[3]) + 1 >= len(h[1])]
    ranks = {mark: rank for rank, mark in enumerate(dict.fromkeys(h[2] for h in headings), start=1)}
    sections = tuple(Section(h.start(), h.end(), one_line(h[1]), ranks[h[2]]) for h in headings)
    title = leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=Format.TEXT.value, sections=sections)
