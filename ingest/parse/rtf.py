"""Parser for RTF: its words, line by line, and its tables."""

import re
from itertools import groupby

from striprtf.striprtf import rtf_to_text

from ingest.parse.composer import Composer
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_CELL = "|"


def read_rtf(body: bytes, fallback_title: str) -> Parsed:
    """Paragraphs and tables. RTF marks no headings; pictures, headers, footers and notes are left out."""
    found = _CODE_PAGE.search(body[:4096])
    try:
        text = rtf_to_text(body.decode(f"cp{found[1].decode()}" if found else "cp1252", "replace"), errors="replace")
    except (LookupError, ValueError, TypeError, IndexError, OverflowError):
        raise Rejected(
            "the RTF file is damaged and cannot be read: open it in a word processor and save it again"
        ) from None
    composer = Composer()
    for is_row, lines in groupby(text.split("\n"), key=lambda line: line.endswith(_CELL)):
        if is_row:
            composer.table(line.removesuffix(_CELL).split(_CELL) for line in lines)
        else:
            composer.block("\n".join(lines))
    return composer.parsed(fallback_title, Format.RTF)
