"""Pages of PDF documents and images as they look, with boxes over words: rendered in the sandbox, pictures of
bounded size."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from msgspec import DecodeError
from PIL import Image

from ingest.parse.parsed import MAX_PAGES
from ingest.parse.quotes import MAX_PAGES_AT_ONCE, BoxedPage, Drawing, Located, Locating, Picture, Quote
from ingest.parse.scan import ScannedPage
from ingest.parse.sniff import image_format
from ingest.sandbox.messages import Limits, decode_scans, encode
from ingest.sandbox.parser import Parser
from ingest.sandbox.verdict import ParserStopped
from ragkv.catalog.cited import cited_text
from ragkv.catalog.documents import document_file
from ragkv.errors import NotFound, Rejected, Unavailable
from ragkv.parts import Parts
from ragkv.threads import Threads

MAX_SECONDS = 20
MAX_KEPT_BYTES = 64 << 20
MAX_KEPT_REFUSALS = 10_000
KEPT_S = 600.0
NO_SCANS = encode(())
_HEAD_BYTES = 1024

V = TypeVar("V")
_Key = tuple[Path, int, int]


class PageViews:
    """Pages of all tenants' documents. Methods block for up to MAX_SECONDS: call them in `threads`.

    All raise NotFound for a document, file or page that there is not, Rejected with the reason for what cannot be
    shown, and Unavailable if it may succeed later.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        settings = parts.settings
        self._parser = Parser(Limits(min(MAX_SECONDS, settings.parse_seconds), settings.parse_memory_mib))
        self._kept = _Kept[bytes](MAX_KEPT_BYTES)
        self._refused = _Kept[str](MAX_KEPT_REFUSALS)
        self.threads = Threads("pages", 1)

    def picture(self, tenant_id: str, document_id: str, number: int, width: int) -> bytes:
        """A page as PNG, at most `width` pixels wide."""
        _check_number(number)
        path, name = document_file(tenant_id, document_id, self._parts.database, self._parts.files)
        key = (path, number, width)
        kept = self._kept.get(key)
        if kept is None:
            with self._opened(tenant_id, key) as body:
                kept = _png(self._parser.draw(name, body, Drawing(number, width)))
            self._kept.keep(key, kept, len(kept))
        return kept

    def boxes(self, tenant_id: str, document_id: str, start: int, end: int, checksum: str | None = None) -> Located:
        """The pages on which characters [start, end) of the document's text lie, with boxes over them. Rejected if they
        have another checksum (`ragkv.catalog.cited`)."""
        cited = cited_text(tenant_id, document_id, start, end, self._parts.database, checksum)
        quotes = tuple(Quote(piece.text, piece.start, piece.end) for piece in cited.pieces)
        last = cited.first + MAX_PAGES_AT_ONCE - 1 if cited.last is None else cited.last
        return self._located(tenant_id, document_id, Locating(cited.first, last, quotes))

    def page(self, tenant_id: str, document_id: str, number: int) -> tuple[BoxedPage, int]:
        """A page without boxes, and how many there are."""
        _check_number(number)
        located = self._located(tenant_id, document_id, Locating(number, number, ()))
        return located.pages[0], located.num_pages

    def forget_deleted(self) -> None:
        """Drop pictures and refusals of files that are gone, and those that are older than KEPT_S."""
        self._kept.forget_deleted()
        self._refused.forget_deleted()

    def close(self) -> None:
        self._parser.close()

    def _located(self, tenant_id: str, document_id: str, asked: Locating) -> Located:
        path, name = document_file(tenant_id, document_id, self._parts.database, self._parts.files)
        with self._opened(tenant_id, (path, asked.first, 0)) as body:
            return self._parser.locate(name, body, asked, self._scans(tenant_id, path.name, asked))

    def _scans(self, tenant_id: str, sha256: str, asked: Locating) -> tuple[ScannedPage, ...]:
        """The pages asked for that were read by OCR, as they were kept; none if that cannot be read any more."""
        try:
            scans = decode_scans(self._parts.files.beside(tenant_id, sha256) or NO_SCANS)
        except DecodeError:
            return ()
        return tuple(scan for scan in scans if asked.first <= scan.number < asked.first + MAX_PAGES_AT_ONCE)

    @contextmanager
    def _opened(self, tenant_id: str, key: _Key) -> Iterator[BinaryIO]:
        """The file, for work that is known by `key`: what was refused lately is refused again without the work."""
        if (reason := self._refused.get(key)) is not None:
            raise Rejected(reason)
        with self._parts.files.open(tenant_id, key[0].name) as body:
            head = os.pread(body.fileno(), _HEAD_BYTES, 0)
            if b"%PDF-" not in head and image_format(head) is None:
                raise Rejected("only pages of PDF files and images can be shown as pictures: see the document's chunks")
            try:
                yield body
            except Rejected as refusal:
                self._refused.keep(key, str(refusal), 1)
                raise Rejected(str(refusal)) from refusal  # none of them concerns what the caller sent
            except ParserStopped as stopped:
                raise Unavailable(str(stopped)) from stopped


def _check_number(number: int) -> None:
    if not 1 <= number <= MAX_PAGES:
        raise NotFound(f"there is no page {number}: a document has at most {MAX_PAGES:,}")


class _Kept(Generic[V]):
    """The values that were used last, of at most `size` together, each for KEPT_S. Safe to share between threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._total = 0
        self._values: OrderedDict[_Key, tuple[V, int, float]] = OrderedDict()

    def get(self, key: _Key) -> V | None:
        with self._lock:
            value, _, until = self._values.get(key, (None, 0, 0.0))
            if value is None or time.monotonic() > until:
                return None
            self._values.move_to_end(key)
            return value

    def keep(self, key: _Key, value: V, size: int) -> None:
        with self._lock:
            if key in self._values:
                self._total -= self._values.pop(key)[1]
            self._values[key] = value, size, time.monotonic() + KEPT_S
            self._total += size
            while self._total > self._size:
                _, (_, freed, _) = self._values.popitem(last=False)
                self._total -= freed

    def forget_deleted(self) -> None:
        with self._lock:
            paths = {path for path, _, _ in self._values}
        gone = {path for path in paths if not path.exists()}
        with self._lock:
            now = time.monotonic()
            for key in [key for key, (_, _, until) in self._values.items() if key[0] in gone or now > until]:
                self._total -= self._values.pop(key)[1]


def _png(picture: Picture) -> bytes:
    file = BytesIO()
    Image.frombytes("RGB", (picture.width, picture.height), picture.pixels).save(file, "PNG")
    return file.getvalue()
