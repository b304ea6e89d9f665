"""Parser for RTF: its words, line by line, and its tables."""

import re
from itertools import groupby

from striprtf.striprtf import rtf_to_text

from ingest.parse.composer import Composer
from ingest.parse.encoding import code_page
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5}) ?")
_CELL = "|"


def read_rtf(body: bytes, fallback_title: str) -> Parsed:
    """Paragraphs and tables. RTF marks no headings; pictures, headers, footers and notes are left out."""
    encoding = "cp1252"
    if found := _CODE_PAGE.search(body[:4096]):  # the library takes any number for one that Python knows
        encoding = code_page(int(found[1]))
        body = body[: found.start()] + b"\\ansi " + body[found.end() :]
    try:
        text = rtf_to_text(body.decode(encoding, "replace"), encoding, errors="replace")
    except (LookupError, ValueError, TypeError, IndexError, OverflowError):
        raise Rejected(
            "the RTF file is damaged and cannot be read: open it in a word processor and save it again"
        ) from None
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")  # \u gives halves of characters
    composer = Composer()
    for is_row, lines in groupby(whole.split("\n"), key=lambda line: line.endswith(_CELL)):
        if is_row:
            composer.table(line.removesuffix(_CELL).split(_CELL) for line in lines)
        else:
            composer.block("\n".join(lines))
    return composer.parsed(fallback_title, Format.RTF)
