"""Pages of PDF documents and images as they look, with boxes over words: rendered in the sandbox, pictures of
bounded size. What one tenant asks for delays no other's pages."""

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from queue import LifoQueue
from typing import BinaryIO, Generic, TypeVar

from msgspec import DecodeError
from PIL import Image

from ingest.parse.parsed import MAX_PAGES
from ingest.parse.quotes import MAX_PAGES_AT_ONCE, BoxedPage, Drawing, Located, Locating, Quote
from ingest.parse.scan import ScannedPage
from ingest.parse.sniff import image_format
from ingest.sandbox.messages import Limits, decode_scans, encode
from ingest.sandbox.parser import Parser
from ingest.sandbox.verdict import ParserStopped
from ragkv.errors import NotFound, Rejected, TooLarge, Unavailable
from ragkv.service.documents.cited import cited_text
from ragkv.service.documents.documents import document_file
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from ragkv.threads import Threads

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Pages that are worked on at once, each of another tenant."""
MAX_SECONDS = 5
"""Of CPU time."""
MAX_MEMORY_MIB = 512
WIDTHS = (600, 1200, 2400)
"""Widths in which pages are drawn. Pictures of other widths are made of these."""
MAX_SLOW_PAGES = 2
"""Refusals for time or memory after which no page of a file is tried for KEPT_S."""
MAX_KEPT_BYTES = 64 << 20
MAX_KEPT_REFUSALS = 10_000
KEPT_S = 600.0
NO_SCANS = encode(())
_HEAD_BYTES = 1024

V = TypeVar("V")
_Key = tuple[Path, int, str | int]
"""A file, a page of it, and the kind of work, or the width of its picture. Page 0 stands for the whole file."""


class PageViews:
    """Pages of all tenants' documents. Methods block for seconds: call them in `threads`.

    All raise NotFound for a document, file or page that there is not, Rejected with the reason for what cannot be
    shown, and Unavailable if it may succeed later.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._parsers = _Parsers(parts.settings)
        self._kept = _Kept[bytes](MAX_KEPT_BYTES)
        self._refused = _Kept[str](MAX_KEPT_REFUSALS)
        self._slow_pages = _Kept[int](MAX_KEPT_REFUSALS)
        self.threads = Threads("pages", AT_ONCE, size_each=1)

    def picture(self, tenant_id: str, document_id: str, number: int, width: int) -> bytes:
        """A page as PNG, at most `width` pixels wide, which is at most the last of WIDTHS."""
        _check_number(number)
        path, name = document_file(tenant_id, document_id, self._parts.database, self._parts.files)
        drawn_width = next(drawn for drawn in WIDTHS if drawn >= width)
        key = (path, number, drawn_width)
        png = self._kept.get(key)
        if png is None:
            with self._opened(tenant_id, path, number, "picture") as body, self._parsers.one() as parser:
                picture = parser.draw(name, body, Drawing(number, drawn_width))
            png = _png(Image.frombytes("RGB", (picture.width, picture.height), picture.pixels))
            self._kept.keep(key, png, len(png))
        if width == drawn_width:
            return png
        with Image.open(BytesIO(png), formats=["PNG"]) as image:
            if image.width <= width:
                return png
            height = max(round(image.height * width / image.width), 1)
            return _png(image.resize((width, height), Image.Resampling.BOX))

    def boxes(self, tenant_id: str, document_id: str, start: int, end: int, checksum: str | None = None) -> Located:
        """The pages on which characters [start, end) of the document's text lie, with boxes over them. Rejected if they
        have another checksum (`ragkv.service.documents.cited`)."""
        cited = cited_text(tenant_id, document_id, start, end, self._parts.database, checksum)
        quotes = tuple(Quote(piece.text, piece.start, piece.end) for piece in cited.pieces)
        last = cited.first_page + MAX_PAGES_AT_ONCE - 1 if cited.last_page is None else cited.last_page
        return self._located(tenant_id, document_id, Locating(cited.first_page, last, quotes))

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
        self._parsers.close()

    def _located(self, tenant_id: str, document_id: str, locating: Locating) -> Located:
        path, name = document_file(tenant_id, document_id, self._parts.database, self._parts.files)
        with self._opened(tenant_id, path, locating.first, "boxes") as body, self._parsers.one() as parser:
            scans: tuple[ScannedPage, ...] = ()
            with suppress(DecodeError):  # pages that were read by OCR, but were kept in another form
                scans = decode_scans(self._parts.files.beside(tenant_id, path.name) or NO_SCANS)
            end = locating.first + MAX_PAGES_AT_ONCE
            return parser.locate(name, body, locating, tuple(s for s in scans if locating.first <= s.number < end))

    @contextmanager
    def _opened(self, tenant_id: str, path: Path, number: int, work: str) -> Iterator[BinaryIO]:
        """The file, for `work` on a page: what was refused lately is refused again without the work."""
        page, file = (path, number, work), (path, 0, "")
        if (reason := self._refused.get(page) or self._refused.get(file)) is not None:
            raise Rejected(reason)
        with self._parts.files.open(tenant_id, path.name) as body:
            head = os.pread(body.fileno(), _HEAD_BYTES, 0)
            if b"%PDF-" not in head and image_format(head) is None:
                raise Rejected("only pages of PDF files and images can be shown as pictures: see the document's chunks")
            try:
                yield body
            except Rejected as refusal:
                self._refused.keep(page, str(refusal), 1)
                if isinstance(refusal, TooLarge):
                    slow_pages = (self._slow_pages.get(file) or 0) + 1
                    self._slow_pages.keep(file, slow_pages, 1)
                    if slow_pages >= MAX_SLOW_PAGES:
                        self._refused.keep(file, f"{refusal} (no page of the file is shown for now)", 1)
                raise Rejected(str(refusal)) from refusal  # none of them concerns what the caller sent
            except ParserStopped as stopped:
                raise Unavailable(str(stopped)) from stopped


class _Parsers:
    """Parsers for AT_ONCE pages. Their servers are all started with the first page: the start takes seconds."""

    def __init__(self, settings: Settings) -> None:
        seconds, memory_mib = min(MAX_SECONDS, settings.parse_seconds), min(MAX_MEMORY_MIB, settings.parse_memory_mib)
        self._parsers = [Parser(Limits(seconds, memory_mib)) for _ in range(AT_ONCE)]
        self._idle = LifoQueue[Parser]()
        for parser in self._parsers:
            self._idle.put(parser)
        self._starting = threading.Thread(target=self._start, name="pages: start", daemon=True)
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[Parser]:
        """A parser that nothing else uses meanwhile."""
        with self._lock:
            if not self._starting.ident:
                self._starting.start()
        parser = self._idle.get()
        try:
            yield parser
        finally:
            self._idle.put(parser)

    def close(self) -> None:
        """End the servers, once what is begun has ended."""
        if self._starting.ident:
            self._starting.join()
        for parser in self._parsers:
            parser.close()

    def _start(self) -> None:
        for parser in self._parsers:
            try:
                parser.start()
            except ParserStopped as stopped:
                log.warning("%s", stopped)


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
        deleted = {path for path in paths if not path.exists()}
        with self._lock:
            now_s = time.monotonic()
            for key in [key for key, (_, _, until) in self._values.items() if key[0] in deleted or now_s > until]:
                self._total -= self._values.pop(key)[1]


def _png(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
