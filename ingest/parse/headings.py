"""Markers that carry headings through a renderer, so that they can be found in its output.

Rendering moves characters about, so that offsets into HTML mean nothing afterwards. A heading's text is put between
two Unicode noncharacters before rendering, which `clean.scrub` keeps out of every document, and found by them after.
"""

import re

from lxml.etree import _Element

from ingest.parse.parsed import Section, one_line

_START = 0xFDD0  # + level
_END = "\ufddf"
_MARKED = re.compile("([\ufdd1-\ufdd6])([^\ufddf]*)\ufddf")
_ANY_MARK = re.compile("[\ufdd0-\ufddf]")
TAGS = ("h1", "h2", "h3", "h4", "h5", "h6")


def mark_headings(tree: _Element) -> None:
    """Put marks around the text of every heading element."""
    for heading in tree.iter(*TAGS):
        heading.text = chr(_START + int(heading.tag[1])) + (heading.text or "")
        if len(heading):
            heading[-1].tail = (heading[-1].tail or "") + _END
        else:
            heading.text += _END


def unmark(marked: str) -> tuple[str, tuple[Section, ...]]:
    """Remove the marks, and return the text with the headings that they enclosed."""
    pieces: list[str] = []
    sections: list[Section] = []
    position = length = 0
    for heading_match in _MARKED.finditer(
        marked, 0, marked.rfind(_END) + 1
    ):  # without this limit, each start would search for an end to no avail
        preceding, heading = (
            _ANY_MARK.sub("", part) for part in (marked[position : heading_match.start()], heading_match[2].strip())
        )
        start = length + len(preceding)
        position, length = heading_match.end(), start + len(heading)
        pieces += preceding, heading
        if title := one_line(heading):
            sections.append(Section(start, length, title, ord(heading_match[1]) - _START))
    pieces.append(_ANY_MARK.sub("", marked[position:]))
    return "".join(pieces), tuple(sections)
