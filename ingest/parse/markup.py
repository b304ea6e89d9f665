"""Parsers for plain text, Markdown, reStructuredText and Org: the text is the source itself but for its tables,
headings become sections."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, takewhile

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ingest.parse.drawn_tables import read_aligned, read_grid, read_simple
from ingest.parse.encoded import read_source
from ingest.parse.parsed import Omissions, Parsed, Section, leading_title, one_line
from ingest.parse.sniff import Format
from ingest.parse.text_tables import Block, Reader, blocks_of, read_org_table, read_piped, table_text, with_blocks

_PLAIN_HEADING = re.compile(r"^(\S[^\n]{0,200})\n([=\-~^#*])(\2{2,})(?:\n|\Z)", re.MULTILINE)
_FRONT_MATTER = re.compile(r"(---|\+\+\+)\n(.*?)\n(?:\1|\.\.\.)(?:\n|\Z)", re.DOTALL)  # YAML, or TOML between +++
_FRONT_TITLE = re.compile(r"^title(?::|[ \t]*=)(.+)", re.MULTILINE)
_BLOCK_SCALAR = re.compile(r"[>|][-+1-9]{0,2}(?:\s+#.*)?")  # as in YAML: the words are the indented lines below
_PIPE, _CODE = re.compile(r"(?<!\\)\|"), re.compile(r"`[^`]*`")
_MARKUP = re.compile(r"[^\w\s.,;:'\"()?/-]")
_HEADING_ID = re.compile(r"\s*\{#[^{}]*\}$")  # of Docusaurus, Hugo and Pandoc
_MAX_HEADING_CHARS = 2_000  # some inline markup takes quadratic time; a title keeps no more than 300
_RST_HEADING = re.compile(r"^[ ]?(\S[^\n]{0,300})\n([!-/:-@\[-`{-~])(\2*)$", re.MULTILINE)
_ROLE = re.compile(r":[a-z:+-]+:(?=`)|[`*]+|\\")
_ORG_HEADING = re.compile(r"^(\*+) +(?:(?:TODO|DONE) +)?(?:\[#\w\] +)?(\S[^\n]*)$", re.MULTILINE)
_ORG_TAGS = re.compile(r"\s:[\w@#%:]+:$")
_ORG_TITLE = re.compile(r"^#\+title:([^\n]+)", re.MULTILINE | re.IGNORECASE)
_MAX_LEVEL = 100


def read_plain(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """The text as it stands but for its tables. Lines underlined in full are headings, ranked as they are first
    used."""
    text = read_source(body, omissions)
    headings = [h for h in _PLAIN_HEADING.finditer(text) if len(h[3]) + 1 >= len(h[1])]
    ranks = {mark: rank for rank, mark in enumerate(dict.fromkeys(h[2] for h in headings), start=1)}
    sections = [Section(h.start(), h.end(), one_line(h[1]), ranks[h[2]]) for h in headings]
    return _with_tables(text, sections, (read_grid, read_piped, read_aligned), "", fallback_title, Format.TEXT)


def read_markdown(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Markdown source as text. The title is the front matter's, else the one highest heading, else the fallback."""
    source = read_source(body, omissions)
    front = _FRONT_MATTER.match(source)
    offset = front.end() if front else 0
    lines = source[offset:].split("\n")
    starts = [min(start, len(source)) for start in accumulate((len(line) + 1 for line in lines), initial=offset)]
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # inline markup of whole documents would take most of the time
    tokens = parser.parse("\n".join(lines))
    inline = MarkdownIt("commonmark")
    headings = (_section(opening, content, starts, inline) for opening, content in pairwise(tokens))
    blocks = list(_tables(tokens, lines, source.count("\n", 0, offset)))
    text, sections = with_blocks(source, blocks, list(filter(None, headings)))
    title = ""
    if front and (match := _FRONT_TITLE.search(front[2])):
        title = match[1].strip()
        if _BLOCK_SCALAR.fullmatch(title):
            below = front[2][match.end() :].removeprefix("\n").split("\n")
            title = " ".join(takewhile(lambda line: not line or line[0].isspace(), below)).strip()
        if len(title) > 2 and title[0] == title[-1] and title[0] in "'\"":  # noqa: PLR2004 - two quotes around something
            title = title[1:-1]
    title = one_line(title) or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=Format.MARKDOWN.value, sections=sections)


def _tables(tokens: Sequence[Token], lines: Sequence[str], first_line: int) -> Iterator[Block]:
    rows: list[list[str] | None] = []
    cells: list[str] = []
    row = ""
    for number, token in enumerate(tokens):
        begin, end = token.map or (0, 0)
        match token.type:
            case "table_open":
                rows, place = [], (first_line + begin, first_line + end)
            case "tr_open":
                cells = []
                rows.append(cells)
                row = lines[begin]
            case "tr_close":
                cells[:] = _whole_row(cells, row)
            case "th_open" | "td_open":
                cells.append(tokens[number + 1].content)
            case "thead_close":
                rows.append(None)
            case "table_close":
                yield Block(*place, table_text(rows))
            case "paragraph_open" if "+" in lines[begin]:
                yield from blocks_of(lines[begin:end], (read_grid,), first_line + begin)


def _whole_row(cells: list[str], line: str) -> list[str]:
    """All cells of a row, the parser's own but where it has dropped some beyond those of the header: pipes in code part
    none, and what is still left over goes to the last."""
    row = line.lstrip(" \t>").rstrip().removeprefix("|").removesuffix("|")
    if len(_PIPE.split(row)) <= len(cells):
        return cells
    whole_code = _CODE.sub(lambda code: _PIPE.sub(r"\\|", code[0]), row)
    return [part.replace(r"\|", "|").strip() for part in _PIPE.split(whole_code, len(cells) - 1)]


def _section(opening: Token, content: Token, starts: list[int], inline: MarkdownIt) -> Section | None:
    if opening.type != "heading_open" or opening.map is None:
        return None
    title = content.content
    if _MARKUP.search(title):
        children = inline.parseInline(title[:_MAX_HEADING_CHARS])[0].children or []
        words = (" " if c.type.endswith("break") else c.content for c in children if c.type != "html_inline")
        title = "".join(words)
    title = _HEADING_ID.sub("", one_line(title))
    first_line, end_line = opening.map
    end = starts[min(end_line, len(starts) - 1)]
    return Section(starts[first_line], end, title, int(opening.tag[1])) if title else None


def read_rst(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines that are underlined in full are headings; a style of underline ranks as it is first used, as does the same
    with a line above."""
    text = read_source(body, omissions)
    sections: list[Section] = []
    ranks: dict[tuple[str, bool], int] = {}
    for match in _RST_HEADING.finditer(text):
        title, mark, line = match[1].rstrip(), match[2], match[2] + match[3]
        words = one_line(_ROLE.sub("", title))
        if len(line) < len(title) or not any(map(str.isalnum, words)):
            continue
        earliest = sections[-1].body if sections else 0
        above = text.rfind("\n", 0, max(0, match.start() - 1)) + 1
        has_overline = above >= earliest and text[above : match.start()] == f"{line}\n"
        level = ranks.setdefault((mark, has_overline), len(ranks) + 1)
        sections.append(Section(above if has_overline else match.start(), match.end(), words, level))
    return _with_tables(text, sections, (read_grid, read_simple), "", fallback_title, Format.RST)


def read_org(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines that begin with stars are headings, without their keywords, priorities and tags."""
    text = read_source(body, omissions)
    headings = ((match, one_line(_ORG_TAGS.sub("", match[2]))) for match in _ORG_HEADING.finditer(text))
    sections = [
        Section(match.start(), match.end(), title, min(len(match[1]), _MAX_LEVEL)) for match, title in headings if title
    ]
    named = _ORG_TITLE.search(text)
    tables = (read_grid, read_org_table)
    return _with_tables(text, sections, tables, one_line(named[1]) if named else "", fallback_title, Format.ORG)


def _with_tables(
    source: str, headings: Sequence[Section], tables: Sequence[Reader], named: str, fallback_title: str, format_: Format
) -> Parsed:
    text, sections = with_blocks(source, list(blocks_of(source.split("\n"), tables)), headings)
    title = named or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=format_.value, sections=sections)
