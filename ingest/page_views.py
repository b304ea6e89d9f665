"""Pages of PDF documents as they look, with boxes over words: made in the sandbox, pictures kept within a bound."""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from ingest.parse.pdf_page import MAX_PAGES_AT_ONCE, BoxedPage, Drawing, Located, Locating, Picture, Quote
from ingest.sandbox.messages import Limits
from ingest.sandbox.parser import Parser
from ingest.sandbox.verdict import ParserStopped
from ragkv.catalog.cited import cited_text
from ragkv.catalog.documents import document_file
from ragkv.errors import Rejected, Unavailable
from ragkv.parts import Parts
from ragkv.threads import Threads

MAX_SECONDS = 20
MAX_KEPT_BYTES = 64 << 20
_REFUSAL_BYTES = 1024
_HEAD_BYTES = 1024

PictureKey = tuple[Path, int, int]


class PageViews:
    """Pages of all tenants' documents. Methods block for up to MAX_SECONDS: call them in `threads`.

    All raise NotFound for a document, file or page that there is not, Rejected with the reason for what cannot be shown,
    and Unavailable if it may succeed later.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        settings = parts.settings
        self._parser = Parser(Limits(min(MAX_SECONDS, settings.parse_seconds), settings.parse_memory_mib))
        self._kept = _Kept(MAX_KEPT_BYTES)
        self.threads = Threads("pages", 1)

    def picture(self, tenant_id: str, document_id: str, number: int, width: int) -> bytes:
        """A page as PNG, at most `width` pixels wide."""
        path, name = document_file(tenant_id, document_id, self._parts.database, self._parts.files)
        key = (path, number, width)
        kept = self._kept.get(key)
        if isinstance(kept, Rejected):
            raise type(kept)(str(kept))
        if kept is None:
            try:
                with self._opened(tenant_id, path) as body:
                    kept = _png(self._parser.draw(name, body, Drawing(number, width)))
            except Rejected as refusal:
                self._kept.keep(key, refusal, _REFUSAL_BYTES)  # a page that takes all the time it may does so once
                raise
            self._kept.keep(key, kept, len(kept))
        return kept

    def boxes(self, tenant_id: str, document_id: str, start: int, end: int) -> Located:
        """The pages on which characters [start, end) of the document's text lie, with boxes over them."""
        cited = cited_text(tenant_id, document_id, start, end, self._parts.database)
        quotes = tuple(Quote(piece.text, piece.start, piece.end) for piece in cited.pieces)
        last = cited.first + MAX_PAGES_AT_ONCE - 1 if cited.last is None else cited.last
        return self._located(tenant_id, document_id, Locating(cited.first, last, quotes))

    def page(self, tenant_id: str, document_id: str, number: int) -> tuple[BoxedPage, int]:
        """A page without boxes, and how many there are."""
        located = self._located(tenant_id, document_id, Locating(number, number, ()))
        return located.pages[0], located.num_pages

    def close(self) -> None:
        self._parser.close()

    def _located(self, tenant_id: str, document_id: str, asked: Locating) -> Located:
        path, name = document_file(tenant_id, document_id, self._parts.database, self._parts.files)
        with self._opened(tenant_id, path) as body:
            return self._parser.locate(name, body, asked)

    @contextmanager
    def _opened(self, tenant_id: str, path: Path) -> Iterator[BinaryIO]:
        with self._parts.files.open(tenant_id, path.name) as body:
            if b"%PDF-" not in os.pread(body.fileno(), _HEAD_BYTES, 0):
                raise Rejected("only pages of PDF files can be shown as they look: see the document's chunks")
            try:
                yield body
            except ParserStopped as stopped:
                raise Unavailable(str(stopped)) from stopped


class _Kept:
    """Pictures and refusals that were used last, of at most `max_bytes` together. Safe to share between threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._values: OrderedDict[PictureKey, tuple[bytes | Rejected, int]] = OrderedDict()

    def get(self, key: PictureKey) -> bytes | Rejected | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def keep(self, key: PictureKey, value: bytes | Rejected, num_bytes: int) -> None:
        with self._lock:
            self._bytes += num_bytes - self._values.pop(key, (b"", 0))[1]
            self._values[key] = value, num_bytes
            while self._bytes > self._max_bytes:
                _, (_, freed) = self._values.popitem(last=False)
                self._bytes -= freed


def _png(picture: Picture) -> bytes:
    file = BytesIO()
    Image.frombytes("RGB", (picture.width, picture.height), picture.pixels).save(file, "PNG")
    return file.getvalue()
