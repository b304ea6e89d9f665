"""Parser for e-books (EPUB): the chapters in reading order, each an HTML page."""

from collections.abc import Iterator
from urllib.parse import unquote, urldefrag

from lxml.etree import QName, XMLSyntaxError, _Element

from ingest.parse.archive import Archive, CheckPages, joined, opened, title_in
from ingest.parse.composer import Composer
from ingest.parse.html import read_html
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.sniff import Format
from ingest.parse.styles import Sheet
from ragkv.errors import Rejected

_CONTAINER = "META-INF/container.xml"
_ENCRYPTED = "META-INF/encryption.xml"
_CHAPTERS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_STYLES, _CONTENTS = "text/css", "application/x-dtbncx+xml"


def read_epub(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Chapters with their headings; one without any is called as in the table of contents. The style sheets of the book
    hold for all of them. Raises Rejected for a book with copy protection."""
    composer = Composer()
    with opened(body, "e-book", CheckPages()) as archive:
        root = archive.xml(_CONTAINER).find(".//{*}rootfile[@full-path]")
        if root is None:
            raise Rejected("its list of contents is missing: download it again")
        path = root.get("full-path")
        book = archive.xml(path)
        folder = path.rpartition("/")[0]
        items = {item.get("id"): item for item in book.iterfind("{*}manifest/{*}item[@href]")}
        chapters = [
            _path(folder, items[entry.get("idref")].get("href"))
            for entry in book.iterfind("{*}spine/{*}itemref")
            if entry.get("idref") in items and items[entry.get("idref")].get("media-type") in _CHAPTERS
        ]
        _refuse_protected(archive, chapters)
        sheets = [item.get("href") for item in items.values() if item.get("media-type") == _STYLES]
        sheet_paths = (
            path for path in dict.fromkeys(_path(folder, sheet) for sheet in sheets) if path in archive.paths
        )
        styles = Sheet("\n".join(archive.read(path).decode(errors="replace") for path in sheet_paths))
        names = dict(_names(archive, folder, list(items.values())))
        for chapter in dict.fromkeys(chapters):
            if chapter in archive.paths:
                parsed = read_html(archive.read(chapter), "chapter", omissions, styles)
                if (name := names.get(chapter)) and not parsed.sections and parsed.text:
                    composer.heading(name, level=1)
                composer.document(parsed)
    return composer.parsed(title_in(book) or fallback_title, Format.EPUB)


def _path(folder: str, reference: str) -> str:
    return joined(folder, unquote(urldefrag(reference).url))


def _refuse_protected(archive: Archive, chapters: list[str]) -> None:
    """Fonts alone may be encrypted, to hide them."""
    if _ENCRYPTED in archive.paths:
        encrypted = {
            _path("", reference.get("URI", "")) for reference in archive.xml(_ENCRYPTED).iter("{*}CipherReference")
        }
        if not encrypted.isdisjoint(chapters):
            raise Rejected("it is copy-protected: upload a copy without the protection")


def _names(archive: Archive, folder: str, items: list[_Element]) -> Iterator[tuple[str, str]]:
    """The paths of chapters with their names in the table of contents, the first of several names wins."""
    for item in items:
        path = _path(folder, item.get("href"))
        is_contents = item.get("media-type") == _CONTENTS or "nav" in item.get("properties", "").split()
        if not is_contents or path not in archive.paths:
            continue
        try:
            contents = archive.xml(path)
        except XMLSyntaxError:
            continue
        here = path.rpartition("/")[0]
        for entry in reversed(list(contents.iter("{*}navPoint", "{*}a"))):
            is_link = QName(entry).localname == "a"
            target = entry if is_link else entry.find("{*}content")
            name = "".join(entry.itertext()) if is_link else entry.findtext("{*}navLabel/{*}text") or ""
            reference = target.get("href" if is_link else "src", "") if target is not None else ""
            yield _path(here, reference), name
