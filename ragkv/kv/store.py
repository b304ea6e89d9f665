"""The KV folder, shared by the workers that write KV files and the engine that reads them."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ragkv.errors import Corrupt, Unavailable, Unsupported
from ragkv.files_io import is_resident, written_before
from ragkv.kv.file import (
    KVContent,
    KVShape,
    PlainKV,
    QCache,
    StoredKV,
    load_kv,
    read_kept,
    read_kv,
    read_qcache,
    read_shape,
    receive_kv,
    write_content,
    write_kv,
)
from ragkv.kv.format import KVFormat
from ragkv.kv.layout import Layout
from ragkv.kv.pieces import Identity, identity_of

if TYPE_CHECKING:
    from ragkv.kv.remote import ObjectStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_KEY = re.compile(r"[0-9a-f]{64}")


class KVFile(NamedTuple):
    """A file of the folder. used: when it was last read or, with an object store behind the folder, used; in
    seconds."""

    used: float
    num_bytes: int
    key: str


class KVStore:
    """KV files by key. Any process may read, write or delete at any time: writes and deletes are atomic.

    With an object store behind it (`remote`) the folder holds copies too, which may go at any time.
    """

    def __init__(self, folder: Path, remote: "ObjectStore | None" = None) -> None:
        self.folder = folder
        self.remote = remote

    def path(self, key: str) -> Path:
        """Path of the KV file of `key`. Raises Corrupt for what is not a KV key: nothing else becomes a path."""
        if not _KEY.fullmatch(key):
            raise Corrupt(f"not a KV key: {key[:80]!r}")
        return self.folder.joinpath(key[:2], f"{key}.safetensors")

    def __contains__(self, key: str) -> bool:
        """Whether there is a file of `key`, whatever its content. One that cannot be looked at now is not there."""
        try:
            return self.path(key).is_file()
        except OSError:  # a stale handle of a network disk, say
            return False

    def in_memory(self, key: str) -> bool:
        """Whether the KV of `key` lies in host memory, so that `open` reads no disk."""
        try:
            return is_resident(self.path(key))
        except Corrupt:
            return False

    def identity(self, key: str) -> Identity | None:
        """Tells the file of `key` from any other that takes its place; None if there is none."""
        try:
            return identity_of(self.path(key).stat())
        except (OSError, Corrupt):
            return None

    def put(self, key: str, kv: PlainKV, kv_format: KVFormat = KVFormat.BF16) -> int:
        """Keep the KV. Returns its size in bytes."""
        return write_kv(self.path(key), kv, kv_format)

    def open(self, key: str, layout: Layout, checked: Identity | None = None) -> StoredKV | None:
        """The KV, checked as `read_kv` says, but not in memory: see `PlainKV`. None if there is none to use, for
        whatever reason.

        A damaged file is removed, so that it is made again; one that merely cannot be read now, or is of another
        layout, is left alone, and so is one that took the place of a damaged one meanwhile.
        """
        return self._use(key, lambda path: read_kv(path, layout, checked))

    def convert(self, source: str, key: str, kv_format: KVFormat) -> bool:
        """Keep the KV of `source`, which is in bf16, in another format as that of `key`. False if there is none to
        use."""

        def converted(path: Path) -> KVContent | None:
            kv = load_kv(path)
            return KVContent.of(kv, kv_format) if isinstance(kv, PlainKV) else None

        content = self._use(source, converted)
        if content is None:
            return False
        write_content(self.path(key), content)
        return True

    def check(self, key: str, layout: Layout) -> None:
        """Read all of a file, and leave it where it is. Raises like `read_kv`."""
        read_kv(self.path(key), layout)

    def qcache(self, key: str) -> QCache | None:
        """The Q-Cache of a key, read without its KV; None like `open`."""
        return self._use(key, read_qcache)

    def kept(self, key: str) -> tuple[int, ...] | None:
        """Places in their chunk of the tokens that the KV of a key is of, as `read_kept` has them; None like `open`.
        Little is read."""
        return self._use(key, read_kept)

    def shape(self, key: str) -> KVShape | None:
        """Shape of the KV of a key; None like `open`. Little is read: a damaged file may have one."""
        return self._use(key, read_shape)

    def _use(self, key: str, read: Callable[[Path], T]) -> T | None:
        looked_at = self.identity(key)
        try:
            return read(self.path(key))
        except FileNotFoundError:
            return None
        except Corrupt as error:
            log.warning("KV file removed, its chunk will be recomputed: %s", error)
            if looked_at is not None and self.identity(key) == looked_at:
                with suppress(OSError):
                    self.path(key).unlink(missing_ok=True)
        except (OSError, Unsupported) as error:
            log.warning("KV file not usable, its chunk will be recomputed: %s", error)
        return None

    def fetch(self, key: str, remote: "ObjectStore") -> int:
        """Bring the file of a key from the object store, checked, and return its bytes.

        Raises NotFound if there is no object, Corrupt or Unsupported for one that cannot be used, Unavailable, OSError.
        """
        receive_kv(self.path(key), lambda path: remote.fetch(key, path))
        return self.bytes_of(key)

    def touch(self, key: str) -> bool:
        """Whether there is a file of `key`, which is used now."""
        path = self.path(key)
        try:
            written = path.stat().st_mtime_ns
            os.utime(path, ns=(time.time_ns(), written))  # the engine knows a file by when it was written
        except OSError:
            return False
        return True

    def drop(self, keys: Iterable[str]) -> None:
        """Remove files. Copies in the object store stay."""
        for key in keys:
            self.path(key).unlink(missing_ok=True)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files, and their copies in the object store: while that is away they stay for the sweep."""
        keys_to_delete = list(keys)
        self.drop(keys_to_delete)
        if self.remote is None or not keys_to_delete:
            return
        try:
            self.remote.delete(keys_to_delete)
        except Unavailable as error:
            log.warning("%d objects of KV are removed by a later sweep: %s", len(keys_to_delete), error)

    def keys(self) -> Iterator[str]:
        """Every key that has a file."""
        return (path.stem for path in self.folder.glob("??/*.safetensors") if _KEY.fullmatch(path.stem))

    def files(self) -> Iterator[KVFile]:
        """Every KV file there is."""
        for key in self.keys():
            with suppress(FileNotFoundError):
                seen = self.path(key).stat()
                yield KVFile(seen.st_atime, seen.st_size, key)

    def older_than(self, moment: datetime) -> Iterator[str]:
        """Keys whose files were written before the moment."""
        return (key for key in self.keys() if written_before(self.path(key), moment))

    def partial(self, before: datetime) -> Iterator[Path]:
        """Files that were still being written when their writer was killed, before the moment:
        ours and safetensors' own."""
        strangers = (path for path in self.folder.glob("??/*") if not _KEY.fullmatch(path.stem) and path.is_file())
        return (path for path in strangers if written_before(path, before))

    def bytes_of(self, key: str) -> int:
        """Size of the KV file, 0 if there is none."""
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return 0
