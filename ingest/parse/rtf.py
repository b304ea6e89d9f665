"""Parser for RTF: its words, line by line, its tables, notes, headers and footers."""

import re
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from ingest.parse.composer import FIELD, PAGE_NUMBER, Composer, line_without_fields
from ingest.parse.encoding import code_page
from ingest.parse.marks import SIGNS, Run, text_of
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.pictures import described
from ingest.parse.rows import shortened
from ingest.parse.sniff import Format
from ingest.parse.spans import Below, Beside
from ragkv.errors import Rejected

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5}) ?")
_TOKEN = re.compile(
    r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-f]{2})[\r\n]*|\\([^a-z])|([{}])|([^\\{}]+)|\\", re.IGNORECASE | re.DOTALL
)
_CHARSETS = {
    0: 1252, 77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255,
    178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850,
}  # fmt: skip
"""Code pages by the `fcharset` of a font."""
_SYMBOLS = {
    "Wingdings": {0x6F: "[ ] ", 0xA8: "[ ] ", 0x78: "[x] ", 0xFD: "[x] ", 0xFE: "[x] ", 0xFC: "✓", 0xFB: "✗"},
    "Wingdings 2": {0x30: "[ ] ", 0xA3: "[ ] ", 0x52: "[x] ", 0x54: "[x] "},
    "Symbol": {0xB7: "•", 0xB0: "°", 0xB1: "±", 0xA3: "≤", 0xB3: "≥", 0x6D: "μ", 0xB4: "×"},
}
_CHARACTERS = {
    "tab": "\t", "line": "\n", "emdash": "—", "endash": "–", "emspace": "\u2003", "enspace": "\u2002", "qmspace": "\u2005",
    "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "nestcell": " | ", "nestrow": "\n",
    "chpgn": FIELD,
}  # fmt: skip
_LITERAL = ("{", "}", "\\")
_ESCAPED = {"~": "\xa0", "_": "\u2011", "-": ""}
_SKIPPED = frozenset((
    "fonttbl", "colortbl", "stylesheet", "info", "pict", "nonshppict", "shprslt", "fldinst", "filetbl", "revtbl", "xe",
    "tc", "tcn", "rxe", "txe", "background", "template", "private", "ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc",
    "aftncn", "listtable", "objdata", "objclass", "objname", "nonesttables", "shpinst", "do", "sn", "sv", "ffl",
    "picprop", "formfield",
))  # fmt: skip
"""Groups whose words are not part of the text."""
_COLLECTED = ("sn", "sv", "ffl", "fldinst")
_SHOWN = ("shptxt", "dptxbxtext")
_STARRED = ("shpinst", "picprop", "do", "shppict", "formfield", "ffl", "nesttableprops", "footnote")
"""Groups that old readers skip, and that hold text or what is said of it."""
_SYMBOL = re.compile("[\x20-\xff\uf020-\uf0ff]")
_MARGINS = re.compile(r"(?:header|footer)[lrf]?")
_RAISED = {"super": SIGNS["sup"], "up": SIGNS["sup"], "sub": SIGNS["sub"], "dn": SIGNS["sub"]}
_UNDEFINED = 25
_SAME_EDGE, _MAX_COLUMNS = 60, 200  # twips; columns


@dataclass(frozen=True, slots=True)
class _Cell:
    words: str
    right: int | None = None
    is_merged: bool = False


_PLAIN = Run("")


class _Story:
    """Lines and rows of tables: of the text, of a note, of a header or footer, or of a box."""

    def __init__(self) -> None:
        self.blocks: list[str | list[_Cell]] = []
        self._pieces: list[tuple[str, Run]] = []
        self._cells: list[str] = []
        self._boxes: list[_Story] = []

    def write(self, words: str, look: Run = _PLAIN) -> None:
        self._pieces.append((words, look))

    def add(self, box: "_Story") -> None:
        """Show what stands in a box after the line that it stands in."""
        self._boxes.append(box)

    def end_line(self, *, is_in_table: bool = False) -> None:
        if is_in_table or self._cells:
            self.write("\n")
        else:
            self.blocks.append(self._line())
            self._add_boxes()

    def end_cell(self) -> None:
        self._cells.append(self._line().strip(" |\n"))

    def end_row(self, edges: list[tuple[int, bool]]) -> None:
        missing = [(None, False)] * (len(self._cells) - len(edges))
        cells = [_Cell(words, *edge) for words, edge in zip(self._cells, [*edges, *missing], strict=False)]
        self.blocks += [cells] if cells else []
        self._cells = []
        self._add_boxes()

    def end(self) -> None:
        if self._cells:
            self.end_row([])
        self.end_line()

    def lines(self) -> Iterator[str]:
        """The words of lines and rows."""
        for block in self.blocks:
            yield block if isinstance(block, str) else " ".join(cell.words for cell in block)

    def _line(self) -> str:
        looks = groupby(self._pieces, key=itemgetter(1))
        line = text_of(replace(look, text="".join(words for words, _ in pieces)) for look, pieces in looks)
        self._pieces = []
        return line.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")  # \u gives halves of characters

    def _add_boxes(self) -> None:
        for box in self._boxes:
            box.end()
            self.blocks += box.blocks
        self._boxes = []


@dataclass
class _Group:
    """The state within a pair of braces. `story` is None where words are not shown, `owner` the last that was."""

    story: _Story | None
    owner: _Story
    font: int = -1
    num_fallbacks: int = 1
    """Number of characters after one of Unicode that old readers show in its place."""
    look: Run = _PLAIN
    is_hidden: bool = False
    is_deleted: bool = False
    is_font_table: bool = False
    is_starred: bool = False
    is_page_number: bool = False
    name: str = ""
    words: list[str] | None = None
    """Collects the words of a group that is not shown, for what they say."""


def read_rtf(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Paragraphs and tables, notes, and what stands in headers and footers alone. RTF marks no headings; pictures are
    left out, but for their descriptions."""
    named = _CODE_PAGE.search(body[:4096])
    encoding = code_page(int(named[1])) if named else "cp1252"
    try:
        source = body.decode(encoding, "replace")
    except LookupError:
        raise Rejected(
            "the RTF file is in an unknown code page: open it in a word processor and save it again"
        ) from None
    reader = _Reader(encoding, omissions)
    reader.read(source)
    composer = Composer()
    for is_row, blocks in groupby(reader.text.blocks, key=lambda block: isinstance(block, list)):
        if is_row:
            composer.table(_rows([block for block in blocks if isinstance(block, list)]))
        else:
            composer.block("\n".join(map(str, blocks)))
    for number, note in enumerate(reader.notes, start=1):
        composer.block(f"{number}. {' '.join(' '.join(note.lines()).split())}")
    lines = {" ".join(line.split()) for line in reader.text.lines()}
    margin_lines = dict.fromkeys(line_without_fields(line) for story in reader.margins for line in story.lines())
    composer.block("\n".join(line for line in margin_lines if line not in lines))
    return composer.parsed(fallback_title, Format.RTF)


class _Reader:
    """Reads the words of a document into stories."""

    def __init__(self, encoding: str, omissions: Omissions) -> None:
        self.text = _Story()
        self.notes: list[_Story] = []
        self.margins: list[_Story] = []
        self._encoding, self._omissions = encoding, omissions
        self._encodings: dict[int, str] = {}
        self._font_names: dict[int, str] = {}
        self._outer: list[_Group] = []
        self._group = _Group(self.text, self.text)
        self._bytes = bytearray()
        self._num_skipped = 0
        self._edges: list[tuple[int, bool]] = []
        self._is_merged = self._is_in_table = False
        self._form: dict[str, int] = {}
        self._entries: list[str] = []
        self._property = ""
        self._descriptions: set[str] = set()

    def read(self, source: str) -> None:
        position = 0
        while match := _TOKEN.match(source, position):
            position = match.end()
            word, number, code, sign, brace, words = match.groups()
            if code:
                self._bytes += b"" if self._num_skipped else bytes.fromhex(code)
                self._num_skipped -= self._num_skipped != 0
                continue
            words = words and words.replace("\r", "").replace("\n", "")
            num_taken = self._write_bytes(words or (sign if sign in _LITERAL else ""))
            if words is not None:
                words = words[num_taken:]
                skipped = min(self._num_skipped, len(words))
                self._num_skipped -= skipped
                self._write(words[skipped:])
                continue
            self._num_skipped = 0
            if word == "bin":
                position += max(0, int(number or 0))
            elif word:
                self._control(word, None if number is None else int(number))
            elif sign and not num_taken:
                self._escaped(sign)
            elif brace == "{":
                self._outer.append(self._group)
                self._group = replace(self._group, is_starred=False, is_page_number=False, name="")
            elif brace and not self._close():
                break
        self._write_bytes()
        for story in (self.text, *self.notes, *self.margins):
            story.end()

    def _write_bytes(self, following: str = "") -> int:
        """Write the bytes that were collected. Returns the number of the characters that follow, 0 or 1, that are
        written with them: the second byte of a character of East Asia may be a letter or a sign, as which it stands."""
        if not self._bytes:
            return 0
        encoding = "latin-1" if self._symbols() else self._encodings.get(self._group.font, self._encoding)
        decoder = getincrementaldecoder(encoding)("replace")
        decoder.decode(self._bytes)
        begun, trail = decoder.getstate()[0], b""
        if begun and following:
            with suppress(UnicodeError):
                (begun + following[0].encode("ascii")).decode(encoding)
                trail = following[0].encode("ascii")
        self._write((self._bytes + trail).decode(encoding, "replace"))
        self._bytes.clear()
        return len(trail)

    def _escaped(self, sign: str) -> None:
        if sign == "*":
            self._group.is_starred = True
        elif sign in "\r\n":
            self._control("par", None)
        else:
            self._write(_ESCAPED.get(sign, sign if sign in _LITERAL else ""))

    def _write(self, words: str) -> None:
        group = self._group
        if group.is_font_table:
            self._font_names[group.font] = self._font_names.get(group.font, "") + words
        elif group.words is not None:
            group.words.append(words)
        elif group.story is not None and not group.is_deleted:
            if symbols := self._symbols():
                words = _SYMBOL.sub(lambda sign: symbols.get(ord(sign[0]) & 0xFF, sign[0]), words)
            if words and (not group.is_hidden or self._omissions.hidden(words)):
                group.story.write(words, group.look)

    def _symbols(self) -> dict[int, str]:
        return _SYMBOLS.get(self._font_names.get(self._group.font, "").strip(" ;"), {})

    def _control(self, word: str, number: int | None) -> None:
        group = self._group
        if group.is_starred:
            group.is_starred = False
            if word not in _STARRED:
                group.story = None
        if word in _CHARACTERS:
            self._write(_CHARACTERS[word])
        elif word == "u" and number is not None:
            self._write(chr(number % 0x10000))
            self._num_skipped = group.num_fallbacks
        elif word in _SKIPPED or word in _SHOWN or word == "footnote" or _MARGINS.fullmatch(word):
            self._open(word)
        elif word in ("fftype", "ffres", "ffdefres"):
            self._form[word] = number or 0
        elif word == "fldrslt" and self._outer and self._outer[-1].is_page_number:
            group.story = None
        elif group.is_font_table or word in ("f", "uc"):
            self._font(word, number)
        elif group.story is not None:
            self._format(word, is_on=number != 0)
            self._lay_out(word, number, group.story)

    def _font(self, word: str, number: int | None) -> None:
        match word, number:
            case "f", int():
                self._group.font = number
            case "uc", _:
                self._group.num_fallbacks = number or 0
            case "fcharset", int() if number in _CHARSETS:
                self._encodings[self._group.font] = code_page(_CHARSETS[number])

    def _format(self, word: str, *, is_on: bool) -> None:
        group = self._group
        match word:
            case "super" | "sub" | "up" | "dn":
                group.look = replace(group.look, sign=_RAISED[word] if is_on else "")
            case "nosupersub":
                group.look = replace(group.look, sign="")
            case "strike" | "striked":
                group.look = replace(group.look, is_struck=is_on)
            case "v":
                group.is_hidden = is_on
            case "deleted":
                group.is_deleted = is_on
            case "plain":
                group.look, group.is_hidden, group.is_deleted = _PLAIN, False, False

    def _lay_out(self, word: str, number: int | None, story: _Story) -> None:
        match word:
            case "par":
                story.end_line(is_in_table=self._is_in_table)
            case "sect" | "page":
                story.end_line()
                story.end_line()
            case "cell":
                story.end_cell()
            case "row":
                story.end_row(self._edges)
                self._is_in_table = False
            case "intbl" | "pard":
                self._is_in_table = word == "intbl"
            case "trowd":
                self._edges, self._is_merged = [], False
            case "clvmrg":
                self._is_merged = True
            case "cellx":
                self._edges.append((number or 0, self._is_merged))
                self._is_merged = False

    def _open(self, word: str) -> None:
        """Begin a group whose words stand apart from the text, or are not shown."""
        group = self._group
        group.name = word
        if word in _SKIPPED:
            group.story, group.words = None, [] if word in _COLLECTED else None
            group.is_font_table = word == "fonttbl"
            if word == "formfield":
                self._form, self._entries = {}, []
            return
        story = _Story()
        if word == "footnote" and group.story is not None and not group.is_deleted:
            self.notes.append(story)
            group.story.write(f"[{len(self.notes)}]")
        elif word in _SHOWN:
            group.owner.add(story)
        elif word != "footnote":
            self.margins.append(story)
        group.story = group.owner = story
        group.look, group.words = _PLAIN, None

    def _close(self) -> bool:
        """End a group, and write what it says. Whether it was in another one."""
        group = self._group
        self._group = self._outer.pop() if self._outer else _Group(None, self.text)
        words = "".join(group.words or ())
        match group.name:
            case "sn":
                self._property = words.strip()
            case "sv" if self._property == "wzDescription" and (line := described(words)) not in self._descriptions:
                self._descriptions.add(line)
                box = _Story()
                box.write(line)
                group.owner.add(box)
            case "ffl":
                self._entries.append(words)
            case "fldinst" if PAGE_NUMBER.search(words):
                self._group.is_page_number = True
                group.owner.write(FIELD)
            case "formfield":
                group.owner.write(self._chosen())
        return bool(self._outer)

    def _chosen(self) -> str:
        """The state of a box or the chosen entry of a list."""
        state = self._form.get("ffres", _UNDEFINED)
        state = self._form.get("ffdefres", 0) if state == _UNDEFINED else state
        match self._form.get("fftype"):
            case 1:
                return "[x] " if state else "[ ] "
            case 2 if 0 <= state < len(self._entries):
                return self._entries[state]
        return ""


def _rows(table: list[list[_Cell]]) -> Iterator[list[str]]:
    """Rows by column, with cells that span columns or rows as `spans.Columns` gives them."""
    grid: list[int] = []
    for right in sorted({cell.right for row in table for cell in row if cell.right is not None}):
        if not grid or right - grid[-1] > _SAME_EDGE:
            grid.append(right)
    above: list[str] = []
    for row in table:
        line: list[str] = []
        for cell in row:
            is_repeated = cell.is_merged and not cell.words and len(line) < len(above)
            line.append(Below(shortened(above[len(line)])) if is_repeated else cell.words)
            if cell.right is not None and len(grid) <= _MAX_COLUMNS:
                line += [Beside(line[-1])] * (bisect_right(grid, cell.right) - len(line))
        yield line
        above = line
