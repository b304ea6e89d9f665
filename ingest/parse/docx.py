"""Parser for Word documents, by conversion to HTML."""

import io

import mammoth

from ingest.parse.archive import damaged, opened
from ingest.parse.html import parse_source
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_STYLES = """
p[style-name='Title'] => h1.title:fresh
p[style-name='Heading 7'] => h6:fresh
p[style-name='Heading 8'] => h6:fresh
p[style-name='Heading 9'] => h6:fresh
"""


def read_docx(body: bytes, fallback_title: str) -> Parsed:
    """Paragraphs, headings, lists, tables, text boxes and notes; images, comments and deleted text are left out.

    Raises TooLarge for a file that unpacks to much more than a document, Rejected for one that is damaged.
    """
    with opened(body, "DOCX") as archive:
        title = archive.core_title()
        html = _to_html(body)
    return parse_source(html, title or fallback_title, Format.DOCX)


def _to_html(body: bytes) -> str:
    try:
        result = mammoth.convert_to_html(
            io.BytesIO(body), style_map=_STYLES, include_embedded_style_map=False, convert_image=lambda image: []
        )
    except RecursionError:
        raise Rejected("its parts are nested too deeply: save it as PDF and upload that") from None
    except MemoryError:
        raise
    except Exception as error:  # mammoth passes on any error of a damaged part: KeyError, ValueError, OSError...
        raise damaged("DOCX") from error
    return str(result.value)
