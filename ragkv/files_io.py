"""Files: space on the disk, durable writes, errors of disks, what the page cache holds, JSON files, and lines of
streams."""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeGuard, TypeVar

import msgspec

from ragkv.errors import OutOfSpace, Rejected, Unavailable
from ragkv.ids import new_id

T = TypeVar("T")


DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

MIB, GIB = 2**20, 2**30
RESERVED_SHARE = 0.05
KV_SHARE = 0.5


def check_room(folder: Path, reserve: int | None) -> None:
    """Check free space. Raises OutOfSpace while less than `reserve` bytes are free where the folder lies; None is
    `default_reserve`."""
    usage = shutil.disk_usage(_existing(folder))
    least = default_reserve(usage.total) if reserve is None else reserve
    if usage.free < least:
        raise OutOfSpace(
            f"the disk is nearly full: {usage.free // MIB:,} MiB are free, and {least // MIB:,} MiB must remain free "
            "(RAGKV_MIN_FREE_BYTES): delete documents, or free up space"
        )


@contextmanager
def writable() -> Iterator[None]:
    """Translate errors of the disk. Raises OutOfSpace for a disk that is full, Unavailable for one that is read-only or
    failing."""
    try:
        yield
    except OSError as error:
        if trouble := trouble_of(error):
            raise trouble from error
        raise


def trouble_of(error: Exception) -> Unavailable | None:
    """OutOfSpace for a disk that is full, Unavailable for one that is read-only or failing,
    None for any other error."""
    if not is_disk_error(error):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace("a disk of the service is full: delete documents, or free up space")
    return Unavailable(f"the service cannot write to one of its disks: {error.strerror}")


def is_disk_error(error: Exception) -> TypeGuard[OSError]:
    """A disk that is full, over its quota, read-only or failing."""
    return isinstance(error, OSError) and error.errno in DISK_ERRORS


def replace_file(path: Path, content: bytes) -> None:
    """Put a file into another's place in one step: a reader finds the old one or the new one, whole, and of several
    writers at once, in whichever containers, the last counts."""
    partial = path.with_name(f".{path.name}.{new_id()}")
    try:
        partial.write_bytes(content)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """A folder for this user alone, with those above it. The names of those that were not there are on disk when this
    returns. Raises OSError, of which NotADirectoryError is one for a file in a folder's place."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
    except FileExistsError:  # another process may make it meanwhile, but only a file is in the way
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    sync(folder.parent)


def fill_once(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder, unless it is there, and fill it before it gets its name. One process does so, others wait; what a
    killed one left is removed."""
    make_folder(folder.parent)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file closes, however the process ends
        if folder.is_dir():
            return
        for leftover in folder.parent.glob(f"{folder.name}.*partial"):
            shutil.rmtree(leftover)
        partial = folder.with_name(f"{folder.name}.partial")
        partial.mkdir()
        fill(partial)
        partial.rename(folder)


def sync(path: Path) -> None:
    """A file, or a folder's names, are on disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def written_before(path: Path, moment: datetime) -> bool:
    """Whether a file was last written before the moment. False for one that is gone."""
    try:
        return path.stat().st_mtime < moment.timestamp()
    except FileNotFoundError:
        return False


def default_reserve(total: int) -> int:
    """A twentieth of the disk, at least 1 GiB and at most 10 GiB."""
    return int(min(max(total * RESERVED_SHARE, GIB), 10 * GIB))


def default_kv_limit(folder: Path, stored: int) -> int:
    """Half of what KV could take: what it takes now, and what is free."""
    return int((shutil.disk_usage(_existing(folder)).free + stored) * KV_SHARE)


_LIBC = ctypes.CDLL(None, use_errno=True)
_NOT_CACHED = bytes(range(0, 256, 2))
"""What `mincore` answers of pages that are not cached: of its answer the lowest bit counts."""


def is_resident(path: Path) -> bool:
    """Whether reading the file touches no disk; False where it is not there or the kernel does not tell."""
    try:
        return 0 < path.stat().st_size == resident_bytes(path)
    except OSError:
        return False


def resident_bytes(path: Path) -> int:
    """Bytes of the file in the page cache, in whole pages; 0 if there is no such file. Reads none of it.

    Raises OSError where the kernel does not tell.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return 0
            # ctypes wants it writable; it is never written.
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapping:
                start = ctypes.c_char.from_buffer(mapping)
                address = ctypes.c_void_p(ctypes.addressof(start))
                pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
                failed = _LIBC.mincore(address, ctypes.c_size_t(size), pages)
                del start  # a mapping that is pointed at cannot be closed
    except FileNotFoundError:
        return 0
    if failed:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return min(len(bytes(pages).translate(None, _NOT_CACHED)) * mmap.PAGESIZE, size)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files. Another process may remove them at the same time."""
    for path in paths:
        path.unlink(missing_ok=True)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def read_json(path: Path, kind: type[T], hint: str = "") -> T | None:
    """The value in a file, None if there is no file. Raises Rejected for one that cannot be read. `hint`: what to do
    then."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Rejected("; ".join(filter(None, (f"{path}: {error}", hint)))) from None


def write_json(path: Path, value: object) -> None:
    """Put a value into a file, indented for people."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(value)))


LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line of a stream. A step's log-probabilities of a whole vocabulary are some 10 MiB."""


async def lines_of(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """The lines of server-sent events or JSON Lines, without their LF or CRLF. Nothing else ends a line: JSON may
    contain the other line separators of Unicode, such as U+2028, as they are. Raises Unavailable for a line of more
    than LONGEST_LINE bytes."""
    partial = bytearray()
    async for piece in pieces:
        *whole, last = piece.split(b"\n")
        for end in whole:
            partial += end
            yield _text(partial)
            partial.clear()
        partial += last
        if len(partial) > LONGEST_LINE:
            raise Unavailable(f"a line of the response has more than {LONGEST_LINE:,} bytes")
    if partial:
        yield _text(partial)


async def beginning_of(pieces: AsyncIterable[bytes], most: int) -> bytes:
    """The bytes of a body, of which no more than `most` and a piece are read."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])


def _text(line: bytearray) -> str:
    return line.removesuffix(b"\r").decode(errors="replace")
