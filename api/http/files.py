"""Files of clients: multipart forms, whose files are streamed to disk and whose other fields are bounded while they are
read; and downloads, in which browsers execute nothing."""

import os
from collections import defaultdict
from typing import Any, BinaryIO

from litestar import Request
from litestar.datastructures import FormMultiDict, UploadFile
from litestar.enums import RequestEncodingType
from litestar.exceptions import ClientException
from litestar.file_system import BaseLocalFileSystem, FileSystemAdapter
from litestar.response import File
from litestar.types import PathType
from litestar.types.file_types import FileInfo
from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser

from api.http.observe import hold
from ragkv.errors import TooLarge, Unsupported
from ragkv.service.base.file_store import FileStore

FILES = "files"
"""Key of the store of files in the app's state."""

FIELD_BYTES = 64 * 1024
FIELDS = 1000
"""Maximum number of fields, files included."""
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "iso-8859-1"})
"""Of fields; the last is what Java's clients say unless told otherwise. Of Python's other codecs some take seconds for
a field, and some make text that no database takes."""
SPOOL_BYTES = 16 * 1024
"""A file up to this size stays in memory; a larger one is on the disk that it will be stored on."""

SANDBOXED = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
"""Headers of uploaded content."""

Part = UploadFile | bytearray


class _OpenFile(BaseLocalFileSystem):
    """One open file, whatever its path names by now."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    async def info(self, path: PathType, **_: Any) -> FileInfo:
        return await FileSystemAdapter.parse_stat_result(path, os.fstat(self._file.fileno()))

    def open(self, *_: Any, **__: Any) -> BinaryIO:  # type: ignore[override]
        return self._file


def attachment(request: Request[Any, Any, Any], file: BinaryIO, name: str) -> File:
    """An uploaded file, byte for byte, to be saved under a name. It is sent whole though it is deleted meanwhile, and
    closed with the request."""
    hold(request, file)
    return File(
        file.name,
        filename=name,
        media_type="application/octet-stream",
        headers=SANDBOXED,
        file_system=_OpenFile(file),
    )


class BoundedFormRequest(Request[Any, Any, Any]):
    """A request whose multipart form is read within these limits, and no other form at all."""

    async def form(self) -> FormMultiDict:
        """The form. Raises Unsupported for a body of another content type, TooLarge for a field above the limit,
        ClientException for a malformed form."""
        kind, options = self.content_type
        state = self._connection_state
        if kind != RequestEncodingType.MULTI_PART:
            raise Unsupported(f"Content-Type {kind[:80]!r} is not supported: send the file as multipart/form-data")
        if "boundary" in options and not isinstance(state.form, dict):
            form = _Form(self.app.state[FILES])
            try:
                state.form = await form.read(self, options["boundary"].encode())
            except BaseException:
                await form.close()
                raise
        return await super().form()


class _Form:
    """Reads one form."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._fields: dict[str, list[Any]] = defaultdict(list)
        self._files: list[UploadFile] = []
        self._part: Part = bytearray()
        self._segment: MultipartSegment | None = None

    async def read(self, request: Request[Any, Any, Any], boundary: bytes) -> dict[str, Any]:
        try:
            with PushMultipartParser(boundary, max_segment_count=FIELDS) as parser:
                async for chunk in request.stream():
                    for piece in parser.parse(chunk):
                        await self._take(piece)
                    if parser.closed:
                        break
        except ParserLimitReached:
            raise TooLarge(
                f"the form has more than {FIELDS} fields, or its headers are too large: send fewer"
            ) from None
        except (MultipartError, UnicodeDecodeError):
            raise ClientException("Invalid multipart/form-data") from None
        return {name: values if len(values) > 1 else values[0] for name, values in self._fields.items()}

    async def close(self) -> None:
        for file in self._files:
            await file.close()

    async def _take(self, piece: MultipartSegment | bytearray | None) -> None:
        """Take the beginning of a part, bytes of it, or None at its end."""
        if isinstance(piece, MultipartSegment):
            self._segment, self._part = piece, bytearray()
            if piece.filename:
                headers = dict(piece.headerlist)
                file = self._part = UploadFile(piece.content_type or "text/plain", piece.filename, headers=headers)
                file.file = self._store.spool(SPOOL_BYTES)
                self._files.append(file)
            return
        assert self._segment is not None, "a part has begun"
        name, part = self._segment.name, self._part
        if isinstance(part, UploadFile) and piece:
            await part.write(piece)
        elif isinstance(part, UploadFile):
            await part.seek(0)
            self._fields[name].append(part)
        elif piece:
            part.extend(piece)
            if len(part) > FIELD_BYTES:
                raise TooLarge(f"the form field {name[:80]!r} has more than {FIELD_BYTES:,} bytes: shorten it")
        else:
            charset = (self._segment.charset or "utf-8").lower()
            if charset not in CHARSETS:
                raise ClientException(f"the form field {name[:80]!r} is not in UTF-8: encode it in UTF-8")
            self._fields[name].append(part.decode(charset))
