"""Plain text."""

from ingest.parse.clean import scrub, tidy
from ingest.parse.encoding import decode
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format


def read_plain(body: bytes, fallback_title: str) -> Parsed:
    """The text as it stands. Plain text has no headings that could be told from other short lines."""
    return Parsed(fallback_title, tidy(scrub(decode(body))), pages=(), media_type=Format.TEXT.value)
