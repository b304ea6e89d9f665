"""Uploaded files, stored by tenant and content hash: a tenant's identical files are stored once."""

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from ragkv.errors import NotFound, Rejected, TooLarge, Unavailable
from ragkv.files_io import check_room, make_folder, sync, writable, written_before

log = logging.getLogger(__name__)

GONE = "the uploaded file no longer exists: upload it again"
_BLOCK = 1 << 20
_UPLOAD = "upload-"
_BESIDE = ".made"
_HASH = re.compile(r"[0-9a-f]{64}")


class Readable(Protocol):
    """An open binary file, or what is like one."""

    def read(self, size: int, /) -> bytes: ...


class StoredBytes(Protocol):
    """Bytes of a tenant by their hash."""

    @property
    def sha256(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...


class StoredFile(NamedTuple):
    """A tenant's uploaded file, by the hash of its bytes."""

    tenant_id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Received:
    """A whole upload under a temporary name, on disk."""

    path: Path
    sha256: str
    num_bytes: int


def is_hash(text: str) -> bool:
    """Whether a text has the form of a file's name in the store."""
    return _HASH.fullmatch(text) is not None


class FileStore:
    """A folder of files that only this user can read."""

    def __init__(self, folder: Path, reserve: int | None = 0) -> None:
        """`reserve`: bytes that must stay free on the disk, as `ragkv.files_io.check_room` takes them."""
        self.folder = folder
        self._reserve = reserve

    def path(self, tenant_id: str, sha256: str) -> Path:
        return self.folder / tenant_id / sha256[:2] / sha256

    def find(self, tenant_id: str, sha256: str) -> Path:
        """The path of a file. Raises NotFound if it is gone."""
        path = self.path(tenant_id, sha256)
        if not path.is_file():
            raise NotFound(GONE)
        return path

    def open(self, tenant_id: str, sha256: str) -> BinaryIO:
        """The file, to be closed by the caller. Raises NotFound if it is gone."""
        try:
            return self.path(tenant_id, sha256).open("rb")
        except FileNotFoundError:
            raise NotFound(GONE) from None

    def spool(self, in_memory: int) -> tempfile.SpooledTemporaryFile[bytes]:
        """A file without a name, for bytes that are still coming in: on this disk once there are more than `in_memory`.

        Its writes raise OutOfSpace when the disk is nearly full and Unavailable when it cannot be written.
        """
        with writable():
            make_folder(self.folder)
        return _Spool(self.folder, self._reserve, in_memory)

    @contextmanager
    def receive(self, body: Readable, max_bytes: int) -> Iterator[Received]:
        """The bytes of `body`, written and hashed as they come; they vanish on exit unless `keep` was called.

        Raises TooLarge as soon as there are more than `max_bytes`, Rejected if there are none, OutOfSpace when the disk
        is nearly full and Unavailable when it cannot be written.
        """
        check_room(self.folder, self._reserve)
        with writable():
            make_folder(self.folder)
            descriptor, name = tempfile.mkstemp(prefix=_UPLOAD, dir=self.folder)  # mode 0600
        path = Path(name)
        try:
            with writable(), os.fdopen(descriptor, "wb") as file:
                received = _copy(body, file, path, max_bytes)
            yield received
        finally:
            # Remove an upload, unless it got its name. On a disk that cannot be written now the sweep will.
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("an upload stays for now: %s", error)

    def keep(self, tenant_id: str, received: Received) -> None:
        """Give it its name. Whole or not at all, whenever the machine stops. Raises Unavailable like `receive`."""
        path = self.path(tenant_id, received.sha256)
        with writable():
            make_folder(path.parent)
            received.path.rename(path)
            sync(path.parent)

    def keep_beside(self, tenant_id: str, sha256: str, content: bytes) -> None:
        """Keep what was made of a file beside it, in place of what was made before. Raises Unavailable like
        `receive`."""
        path = self._beside(tenant_id, sha256)
        with writable():
            make_folder(path.parent)
            descriptor, name = tempfile.mkstemp(prefix=_UPLOAD, dir=self.folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(name).rename(path)

    def beside(self, tenant_id: str, sha256: str) -> bytes | None:
        """Derived data kept beside a file; None if there is none."""
        try:
            return self._beside(tenant_id, sha256).read_bytes()
        except FileNotFoundError:
            return None

    def stored(self, before: datetime) -> Iterator[StoredFile]:
        """The files that were written before the moment, and those that something was made of and left."""
        paths = [path for path in self.folder.glob("*/??/*") if is_hash(path.stem)]
        return iter({StoredFile(path.parts[-3], path.stem): None for path in paths if written_before(path, before)})

    def check_there(self) -> None:
        """Check that the folder exists. Raises Unavailable: what it should hold need not be lost."""
        if not self.folder.is_dir():
            raise Unavailable(
                f"there is no folder {self.folder}: do this where the uploaded files are (RAGKV_DATA_DIR), with their disk "
                "mounted. If all of them are lost, make the folder"
            )

    def tenants(self) -> set[str]:
        """Ids of the tenants that files are of, or were."""
        return {path.parent.name for path in self.folder.glob("*/??")}

    def unfinished(self, before: datetime) -> Iterator[Path]:
        """Uploads that nothing was written to since the moment: a process that was killed left them."""
        return (path for path in self.folder.glob(f"{_UPLOAD}*") if written_before(path, before))

    def delete(self, tenant_id: str, sha256: str) -> None:
        self._beside(tenant_id, sha256).unlink(missing_ok=True)
        self.path(tenant_id, sha256).unlink(missing_ok=True)

    def _beside(self, tenant_id: str, sha256: str) -> Path:
        return self.path(tenant_id, sha256).with_suffix(_BESIDE)


class _Spool(tempfile.SpooledTemporaryFile[bytes]):
    def __init__(self, folder: Path, reserve: int | None, in_memory: int) -> None:
        super().__init__(in_memory, prefix=_UPLOAD, dir=str(folder))
        self._folder, self._reserve, self._in_memory = folder, reserve, in_memory

    def write(self, piece: Any) -> int:
        if self.tell() + len(piece) > self._in_memory:
            check_room(self._folder, self._reserve)
        with writable():
            return super().write(piece)


def _copy(body: Readable, file: BinaryIO, path: Path, max_bytes: int) -> Received:
    digest, num_bytes = hashlib.sha256(), 0
    while block := body.read(_BLOCK):
        num_bytes += len(block)
        if num_bytes > max_bytes:
            raise TooLarge(f"the file is larger than {max_bytes:,} bytes: split it, or raise RAGKV_MAX_UPLOAD_BYTES")
        digest.update(block)
        file.write(block)
    if not num_bytes:
        raise Rejected("the file is empty")
    file.flush()
    os.fsync(file.fileno())
    return Received(path, digest.hexdigest(), num_bytes)
