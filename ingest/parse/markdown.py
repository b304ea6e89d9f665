"""Parser for Markdown: the text is the source itself but for its tables, headings become sections."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ingest.parse.encoded import read_source
from ingest.parse.grids import read_grid
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ingest.parse.text_tables import Block, blocks_of, table_text, with_blocks

_FRONT_MATTER = re.compile(r"---\n(.*?)\n(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:(.+)", re.MULTILINE)
_MARKUP = re.compile(r"[^\w\s.,;:'\"()?/-]")
_MAX_HEADING_CHARS = 2_000  # some inline markup takes quadratic time; a title keeps no more than 300


def read_markdown(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Markdown source as text. The title is the front matter's, else the one highest heading, else the fallback."""
    source = read_source(body, omissions)
    front = _FRONT_MATTER.match(source)
    text, sections = with_blocks(source, *_structure(source, front.end() if front else 0))
    title = ""
    if front and (match := _FRONT_TITLE.search(front[1])):
        title = match[1].strip()
        if len(title) > 2 and title[0] == title[-1] and title[0] in "'\"":  # noqa: PLR2004 - two quotes around something
            title = title[1:-1]
    title = one_line(title) or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=Format.MARKDOWN.value, sections=sections)


def _structure(text: str, offset: int) -> tuple[list[Block], list[Section]]:
    """The tables and the headings from a character on, which is the first of a line."""
    lines = text[offset:].split("\n")
    starts = [min(start, len(text)) for start in accumulate((len(line) + 1 for line in lines), initial=offset)]
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # inline markup of whole documents would take most of the time
    tokens = parser.parse("\n".join(lines))
    inline = MarkdownIt("commonmark")
    headings = (_section(opening, content, starts, inline) for opening, content in pairwise(tokens))
    return list(_tables(tokens, lines, text.count("\n", 0, offset))), [heading for heading in headings if heading]


def _tables(tokens: Sequence[Token], lines: Sequence[str], first_line: int) -> Iterator[Block]:
    rows: list[list[str] | None] = []
    cells: list[str] = []
    for number, token in enumerate(tokens):
        begin, end = token.map or (0, 0)
        match token.type:
            case "table_open":
                rows, place = [], (first_line + begin, first_line + end)
            case "tr_open":
                cells = []
                rows.append(cells)
            case "th_open" | "td_open":
                cells.append(tokens[number + 1].content)
            case "thead_close":
                rows.append(None)
            case "table_close":
                yield Block(*place, table_text(rows))
            case "paragraph_open" if "+" in lines[begin]:
                yield from blocks_of(lines[begin:end], (read_grid,), first_line + begin)


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
