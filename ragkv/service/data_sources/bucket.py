"""The files under a prefix in an object store: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError, PermissionDeniedError

from ragkv.errors import NotFound, Rejected, Unavailable
from ragkv.object_store import StoreLocation, first_line, opened, told_of
from ragkv.service.base.file_store import Readable
from ragkv.service.data_sources.location import MAX_KEY_BYTES, ListedFile, is_hidden

PIECE_BYTES = 2**20
LISTED_AT_ONCE = 1000
_BEHIND_EMPTY = "0"
"""The first character behind the slash, and so behind names that begin with one, and behind `.` and `..`."""


class BucketFiles:
    """Objects below a URL. Their ETags tell when they change."""

    def __init__(self, place: StoreLocation) -> None:
        """Open the object store. Raises Rejected for a URL that names no object store."""
        self._store = opened(place)
        self.gap: str | None = None

    def listed(self) -> Iterator[ListedFile]:
        """All files but hidden ones, each at most twice.

        obstore lists none of a thousand names if it refuses one: then all folders are listed from the start, one after
        the other, and the files that came before the refusal come again.
        """
        self.gap = None
        try:
            yield from self._at_once("")
        except Rejected:
            yield from self._folder_by_folder()

    def _folder_by_folder(self) -> Iterator[ListedFile]:
        """The files at any depth, each once. Of a folder with a name that obstore refuses, those behind empty names."""
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                with _asking():
                    level = obstore.list_with_delimiter(self._store, folder)
            except Rejected as refusal:
                self.gap = str(refusal)
                with suppress(Rejected):
                    yield from self._at_once(folder, f"{folder}/{_BEHIND_EMPTY}".lstrip("/"))
            else:
                yield from self._files(level["objects"])
                folders += level["common_prefixes"]

    def _at_once(self, folder: str, behind: str | None = None) -> Iterator[ListedFile]:
        """The files at any depth, or those whose keys come behind another. Raises Rejected at a name that obstore
        refuses."""
        with _asking():
            listed = iter(obstore.list(self._store, folder, offset=behind, chunk_size=LISTED_AT_ONCE))
        while objects := _next(listed):
            yield from self._files(objects)

    def _files(self, objects: Iterable[Any]) -> Iterator[ListedFile]:
        for meta in objects:
            key = meta["path"]
            if len(key.encode()) > MAX_KEY_BYTES:
                self.gap = f"{key[:80]}...: its name is longer than {MAX_KEY_BYTES:,} bytes"
            elif not any(map(is_hidden, key.split("/"))):
                name = meta["e_tag"] or meta["last_modified"].isoformat()
                yield ListedFile(key, f"{meta['size']} {name}"[:200], meta["size"])

    @contextmanager
    def open(self, key: str) -> Iterator[Readable]:
        with _asking():
            try:
                response = obstore.get(self._store, key)
            except FileNotFoundError:
                raise NotFound("the file is gone") from None
            except PermissionDeniedError as error:
                raise Rejected(told_of(error)) from None
            pieces = iter(response.stream(PIECE_BYTES))
        yield _Object(pieces, response.meta["size"])

    def exists(self, key: str) -> bool:
        with _asking():
            try:
                obstore.head(self._store, key)
            except FileNotFoundError:
                return False
        return True


class _Object:
    """The bytes of an object as they come."""

    def __init__(self, pieces: Iterator[Any], size: int) -> None:
        self._pieces = pieces
        self._missing = size
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end. Raises Unavailable if fewer came than the object has."""
        if not self._rest:
            self._rest = bytes(_next(self._pieces) or b"")
            self._missing -= len(self._rest)
            if not self._rest and self._missing:
                raise Unavailable(f"object store: the connection ended {self._missing:,} bytes too early")
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def _next(pieces: Iterator[Any]) -> Any:
    with _asking():
        return next(pieces, None)


@contextmanager
def _asking() -> Iterator[None]:
    """Errors of the store as Unavailable, but Rejected for a name that obstore refuses."""
    try:
        yield
    except (NotFound, Rejected):
        raise
    except InvalidPathError as error:
        name = first_line(error).removeprefix("Encountered object with invalid path: ")
        raise Rejected(f"{name}: rename that object, because files next to it may be missed too") from None
    except (BaseError, ValueError, OSError) as error:
        raise Unavailable(told_of(error)) from None
