"""Parser for Jupyter notebooks: cells and their outputs as Markdown."""

import re
from dataclasses import replace

import msgspec

from ingest.parse.encoding import decode
from ingest.parse.html import parse_source
from ingest.parse.markup import read_markdown
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_BACKTICKS = re.compile("`+")
_OBJECT = re.compile(r"\s*<IPython\.core\.display\.\w+ object>\s*")
_KINDS = ("text/html", "text/markdown", "text/latex", "text/plain")
_Lines = str | list[str]


class _Output(msgspec.Struct):
    text: _Lines = ""
    data: dict[str, object] = {}
    ename: str = ""
    evalue: str = ""


class _Cell(msgspec.Struct):
    cell_type: str
    source: _Lines = ""
    input: _Lines = ""  # in version 3
    outputs: list[_Output] = []


class _Worksheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell] = []
    worksheets: list[_Worksheet] = []  # in version 3


def read_notebook(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Markdown cells as they stand, code and the text of its results between fences; pictures are left out."""
    try:
        notebook = msgspec.json.decode(decode(body), type=_Notebook)
    except (msgspec.DecodeError, RecursionError):
        raise Rejected("the notebook is damaged and cannot be read: open it in Jupyter and save it again") from None
    cells = [*notebook.cells, *(cell for sheet in notebook.worksheets for cell in sheet.cells)]
    blocks = []
    for cell in cells:
        words = _joined(cell.source) or _joined(cell.input)
        blocks.append(words if cell.cell_type != "code" else _fenced(words))
        for output in cell.outputs:
            html, markdown, latex, words = (_joined(output.data.get(kind)) for kind in _KINDS)
            is_object = _OBJECT.fullmatch(words) is not None
            if is_object and markdown:
                blocks.append(markdown)
                continue
            if "<table" in html or (is_object and html):
                words = parse_source(html, "", Format.HTML, omissions).text
            elif is_object:
                words = latex or words
            error = f"{output.ename}: {output.evalue}" if output.ename else ""
            blocks.append(_fenced(_joined(output.text) or words or error))
    parsed = read_markdown("\n\n".join(blocks).encode(errors="replace"), fallback_title, omissions)
    return replace(parsed, media_type=Format.NOTEBOOK.value)


def _joined(lines: object) -> str:
    """Text, which may be in lines; none of what is neither."""
    return lines if isinstance(lines, str) else "".join(map(str, lines)) if isinstance(lines, list) else ""


def _fenced(code: str) -> str:
    """Code between fences longer than any in it, so that none of its lines is taken for Markdown."""
    code = code.strip("\n")
    if not code.strip():
        return ""
    longest = max(map(len, _BACKTICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{code}\n{fence}"
