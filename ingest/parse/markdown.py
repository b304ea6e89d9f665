"""Parser for Markdown: the text is the source itself, headings become sections."""

import re
from itertools import accumulate, pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ingest.parse.encoding import decode
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ragkv.text import scrub, tidy

_FRONT_MATTER = re.compile(r"---\n(.*?)\n(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:(.+)", re.MULTILINE)
_MARKUP = re.compile(r"[^\w\s.,;:'\"()?/-]")
_MAX_HEADING_CHARS = 2_000  # some inline markup takes quadratic time; a title keeps no more than 300


def read_markdown(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Markdown source as text. The title is the front matter's, else the one highest heading, else the fallback."""
    text = tidy(scrub(decode(body)))
    front = _FRONT_MATTER.match(text)
    sections = _sections(text, front.end() if front else 0)
    title = ""
    if front and (match := _FRONT_TITLE.search(front[1])):
        title = match[1].strip()
        if len(title) > 2 and title[0] == title[-1] and title[0] in "'\"":  # noqa: PLR2004 - two quotes around something
            title = title[1:-1]
    title = one_line(title) or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=Format.MARKDOWN.value, sections=sections)


def _sections(text: str, offset: int) -> tuple[Section, ...]:
    lines = text[offset:].split("\n")
    starts = [min(start, len(text)) for start in accumulate((len(line) + 1 for line in lines), initial=offset)]
    blocks = MarkdownIt("commonmark")
    blocks.core.ruler.enableOnly(["normalize", "block"])  # inline markup of whole documents would take most of the time
    tokens = blocks.parse("\n".join(lines))
    inline = MarkdownIt("commonmark")
    headings = (_section(opening, content, starts, inline) for opening, content in pairwise(tokens))
    return tuple(section for section in headings if section is not None)


def _section(opening: Token, content: Token, starts: list[int], inline: MarkdownIt) -> Section | None:
    if opening.type != "heading_open" or opening.map is None:
        return None
    title = content.content
    if _MARKUP.search(title):
        children = inline.parseInline(title[:_MAX_HEADING_CHARS])[0].children or []
        words = (" " if c.type.endswith("break") else c.content for c in children if c.type != "html_inline")
        title = "".join(words)
    title = one_line(title)
    first_line, end_line = opening.map
    end = starts[min(end_line, len(starts) - 1)]
    return Section(starts[first_line], end, title, int(opening.tag[1])) if title else None
