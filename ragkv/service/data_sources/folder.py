"""The files in a folder on this machine or a network disk. Symbolic links are not followed, and only regular files
are read."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ragkv.errors import NotFound, Rejected, Unavailable
from ragkv.service.base.file_store import Readable
from ragkv.service.data_sources.location import MAX_DEPTH, MAX_KEY_BYTES, UNSETTLED, ListedFile, is_hidden

SETTLED_S = 2.0
"""File systems note changes by clocks as coarse as this."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER = _READ | os.O_DIRECTORY
_GONE = (errno.ENOENT, errno.ENOTDIR)
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL, errno.ENAMETOOLONG, errno.EOPNOTSUPP})
"""Of one file, until it or its rights change. Other errors may be a disk's that is away for a while."""
_LINK = "it is a symbolic link, and links are not followed: put the file itself there"
_SPECIAL = "it is not a regular file"
_NAME = "its name is not UTF-8: rename it"


class FolderFiles:
    """Files below a folder. Every name on the way there from `root` is opened by itself, so that none can be a link."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        """root: a folder that the operator allows, which may be a link itself. `names`: those from there to the
        folder."""
        self._root = root
        self._names = tuple(names)
        self.gap: str | None = None

    def listed(self) -> Iterator[ListedFile]:
        self.gap = None
        yield from self._walk(self._opened_folder(), "", 0)

    @property
    def path(self) -> Path:
        return self._root.joinpath(*self._names)

    def folders(self) -> Iterator[Path]:
        """The folder and those below it that can be read, but hidden ones and links. Raises Unavailable."""
        os.close(self._opened_folder())
        for folder, below, _ in os.walk(self.path):
            yield Path(folder)
            below[:] = (name for name in below if not is_hidden(name))

    @contextmanager
    def open(self, key: str) -> Iterator[Readable]:
        try:
            descriptor = self._opened(key.split("/"), _READ)
        except OSError as error:
            raise _as_file_error(error) from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Rejected(_SPECIAL)
            yield _Reading(file)

    def exists(self, key: str) -> bool:
        """A file that cannot be looked for may be there; one with a folder in its place is not."""
        *folders, name = key.split("/")
        try:
            folder = self._opened(folders, _FOLDER)
            try:
                return not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            finally:
                os.close(folder)
        except OSError as error:
            return error.errno not in _GONE

    def _opened_folder(self) -> int:
        try:
            return self._opened((), _FOLDER)
        except OSError as error:
            raise Unavailable(f"the folder cannot be read: {_reason(error)}") from None

    def _opened(self, names: Sequence[str], flags: int) -> int:
        """A descriptor of what the names lead to, one after the other. Raises OSError, also for a link among them."""
        here = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        path = (*self._names, *names)
        for at, name in enumerate(path):
            try:
                below = os.open(name, flags if at == len(path) - 1 else _FOLDER, dir_fd=here)
            finally:
                os.close(here)
            here = below
        return here

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[ListedFile]:
        """The files of an open folder and those below it. Closes it."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not is_hidden(entry.name):
                        yield from self._entry(entry, folder, prefix, depth)
        except OSError as error:
            self._missed(prefix, error)
        finally:
            os.close(folder)

    def _entry(self, entry: "os.DirEntry[str]", folder: int, prefix: str, depth: int) -> Iterator[ListedFile]:
        key = prefix + entry.name
        shown = key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if shown != key:
            # Its end tells more of it, and has the suffix by which a sync knows what to look at.
            yield ListedFile(shown.encode()[-MAX_KEY_BYTES:].decode(errors="ignore"), _NAME, 0, _NAME)
        elif len(key.encode()) > MAX_KEY_BYTES:
            self.gap = f"{key[:80]}...: its name is longer than {MAX_KEY_BYTES:,} bytes"
        elif entry.is_symlink():
            yield ListedFile(key, _LINK, 0, _LINK)
        elif not entry.is_dir(follow_symlinks=False):
            yield from self._file(entry, key)
        elif depth >= MAX_DEPTH:
            self.gap = f"{shown[:80]}...: folders are more than {MAX_DEPTH} deep"
        else:
            try:
                below = os.open(entry.name, _FOLDER, dir_fd=folder)
            except OSError as error:
                self._missed(key, error)
            else:
                yield from self._walk(below, f"{key}/", depth + 1)

    def _file(self, entry: "os.DirEntry[str]", key: str) -> Iterator[ListedFile]:
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._missed(key, error)
            return
        if not stat.S_ISREG(seen.st_mode):
            yield ListedFile(key, _SPECIAL, 0, _SPECIAL)
            return
        changed = max(seen.st_mtime, seen.st_ctime)
        version = f"{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns}"
        yield ListedFile(key, version if time.time() - changed > SETTLED_S else UNSETTLED, seen.st_size)

    def _missed(self, name: str, error: OSError) -> None:
        """Note a gap in the listing, unless the file vanished while it was listed."""
        if error.errno not in _GONE:
            self.gap = f"{name.rstrip('/') or 'the folder'} cannot be read: {_reason(error)}"


class _Reading:
    """An open file whose errors are its own, and none of the data folder's."""

    def __init__(self, file: Readable) -> None:
        self._file = file

    def read(self, size: int, /) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise _as_file_error(error) from None


def _as_file_error(error: OSError) -> NotFound | Rejected | Unavailable:
    if error.errno in _GONE:
        return NotFound("the file is gone")
    if error.errno == errno.ELOOP:
        return Rejected(_LINK)
    kind = Rejected if error.errno in _REFUSALS else Unavailable
    return kind(f"it cannot be read: {_reason(error)}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
