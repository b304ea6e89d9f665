"""The file types that ingestion reads, by file name extension, and whether OCR is there for images.

An upload may have any name: its bytes decide.
"""

from importlib.util import find_spec
from pathlib import PurePosixPath

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".gif")
_KINDS = {
    "PDF": (".pdf",),
    "Office": (".docx", ".xlsx", ".xlsm", ".pptx", ".rtf"),
    "OpenDocument": (".odt", ".ods", ".odp"),
    "EPUB": (".epub",),
    "mail": (".eml", ".mbox", ".msg", ".mht", ".mhtml"),
    "HTML": (".html", ".htm", ".xhtml"),
    "XML": (".xml", ".nxml", ".rss", ".atom", ".dita"),
    "JSON": (".json", ".jsonl", ".ndjson", ".geojson", ".ipynb"),
    "CSV": (".csv", ".tsv", ".tab"),
    "Markdown": (".md", ".markdown", ".mdx"),
    "text": (".txt", ".text", ".log", ".rst", ".org"),
    "images": IMAGES,
}
READ = tuple(suffix for suffixes in _KINDS.values() for suffix in suffixes)
*_first, _last = _KINDS
READ_KINDS = f"{', '.join(_first)} or {_last}"
"""As people read it."""


def is_read(name: str) -> bool:
    """Whether a file of this name is worth a look."""
    return suffix_of(name) in READ


def is_image(name: str) -> bool:
    """Whether a file of this name is read by OCR alone."""
    return suffix_of(name) in IMAGES


def suffix_of(name: str) -> str:
    return PurePosixPath(name.lower()).suffix


NOT_INSTALLED = "install ragkv[ocr] on the server to read it by OCR, or recognise its text first and upload that"
SWITCHED_OFF = "OCR is switched off (RAGKV_OCR): recognise its text first and upload that"


def no_ocr(*, wanted: bool) -> str:
    """Advice about an image where there is no OCR; empty where there is. wanted: as the settings say."""
    if not wanted:
        return SWITCHED_OFF
    return NOT_INSTALLED if find_spec("rapidocr") is None or find_spec("onnxruntime") is None else ""
