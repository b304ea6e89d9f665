"""Parser for plain text. Only underlined lines are headings: a short line alone could be anything."""

import re

from ingest.parse.aligned import read_aligned
from ingest.parse.encoded import read_source
from ingest.parse.grids import read_grid
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ingest.parse.text_tables import blocks_of, read_piped, with_blocks

_TABLES = (read_grid, read_piped, read_aligned)
_UNDERLINED = re.compile(r"^(\S[^\n]{0,200})\n([=\-~^#*])(\2{2,})(?:\n|\Z)", re.MULTILINE)


def read_plain(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """The text as it stands but for its tables. Lines underlined in full are headings, ranked as they are first
    used."""
    text = read_source(body, omissions)
    headings = [h for h in _UNDERLINED.finditer(text) if len(h[3]) + 1 >= len(h[1])]
    ranks = {mark: rank for rank, mark in enumerate(dict.fromkeys(h[2] for h in headings), start=1)}
    sections = tuple(Section(h.start(), h.end(), one_line(h[1]), ranks[h[2]]) for h in headings)
    text, sections = with_blocks(text, list(blocks_of(text.split("\n"), _TABLES)), sections)
    title = leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=Format.TEXT.value, sections=sections)
