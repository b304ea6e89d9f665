"""Parser for Word documents, by conversion to HTML."""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping

import mammoth
from lxml import etree

from ingest.parse.archive import Archive, damaged, opened, parse_xml
from ingest.parse.equations import emptied_equations
from ingest.parse.html import parse_source
from ingest.parse.list_numbers import mark_list_numbers, number_items
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_STYLES = """
p[style-name='Title'] => h1.title:fresh
p[style-name='Heading 7'] => h6:fresh
p[style-name='Heading 8'] => h6:fresh
p[style-name='Heading 9'] => h6:fresh
"""
_W = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_SAME = {
    "bdo": "smartTag", "dir": "smartTag", "fldSimple": "smartTag", "ruby": "smartTag", "rubyBase": "smartTag",
    "cr": "br", "ptab": "tab",
}  # fmt: skip
"""Elements that the library leaves out with all that is in them, by one that it reads as they are meant."""
_LEFT_OUT = re.compile(rf"[<:](?:oMath|{'|'.join(_SAME)})\b".encode())


def read_docx(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Paragraphs, headings, lists, tables, text boxes, notes and equations; images, comments and deleted text are left
    out.

    Raises TooLarge for a file that unpacks to much more than a document, Rejected for one that is damaged.
    """
    with opened(body, "DOCX") as archive:
        title = archive.core_title()
        parts = {path: archive.read(path) for path in archive.paths if path.endswith((".xml", ".rels"))}
        numbered = dict(_numbered(archive))
    is_readable = not numbered and not any(map(_LEFT_OUT.search, parts.values()))
    html = _to_html(body if is_readable else _readable({**parts, **numbered}))
    return parse_source(number_items(html), title or fallback_title, Format.DOCX, omissions)


def _numbered(archive: Archive) -> Iterator[tuple[str, bytes]]:
    """The main part with the numbers of its list items, if the document has lists."""
    packaged = {relation.kind: relation.path for relation in archive.relations("").values()}
    document = packaged.get("officeDocument", "word/document.xml")
    paths = {relation.kind: relation.path for relation in archive.relations(document).values()}
    numbering, styles = (paths.get(kind, f"word/{kind}.xml") for kind in ("numbering", "styles"))
    if numbering in archive.paths and document in archive.paths:
        root = archive.xml(document)
        mark_list_numbers(root, archive.xml(numbering), archive.xml(styles) if styles in archive.paths else None)
        yield document, etree.tostring(root)


def _readable(parts: Mapping[str, bytes]) -> bytes:
    """The document of these parts, with nothing in it that the library leaves out."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path, part in parts.items():
            archive.writestr(path, _rewritten(part) if _LEFT_OUT.search(part) else part)
    return file.getvalue()


def _rewritten(part: bytes) -> bytes:
    try:
        root = parse_xml(part)
    except etree.XMLSyntaxError:
        return part
    for equation, line in emptied_equations(root):
        equation.tag = f"{{{_W[0]}}}r"
        etree.SubElement(equation, f"{{{_W[0]}}}t").text = line
    for paragraph in root.iter("{*}oMathPara"):
        paragraph.tag = f"{{{_W[0]}}}smartTag"
    for namespace in _W:
        for element in root.iter(*(f"{{{namespace}}}{name}" for name in _SAME)):
            element.tag = f"{{{namespace}}}{_SAME[etree.QName(element).localname]}"
    return bytes(etree.tostring(root))


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
