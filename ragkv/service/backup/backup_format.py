"""The layout of a backup folder, and the manifest that marks it as complete.

DIR/tables/NAME.jsonl       one row a line
DIR/files/TENANT/ab/SHA256  uploaded files, named by their content
DIR/files.jsonl             [tenant, SHA-256] of each of them
DIR/manifest.json           written last: without it the backup was never finished
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from ragkv.errors import Rejected
from ragkv.files_io import sync
from ragkv.ids import is_id
from ragkv.service.backup.dump import TableDump, table_file
from ragkv.service.base.file_store import FileStore, StoredFile, is_hash

FORMAT = 1
MANIFEST = "manifest.json"
_TABLE = re.compile(r"[a-z_]{1,60}")
TABLES, FILES, FILE_LIST = "tables", "files", "files.jsonl"
SECRETS = "This folder holds every document, the digests of API keys and the secrets of tenants: keep it as the service itself."


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup.

    `revision` is the schema's version, `file_list` the SHA-256 of DIR/files.jsonl. `lost_files` were named by rows and
    were missing or damaged already when the backup was made.
    """

    format: int = FORMAT
    notice: str = SECRETS
    ragkv: str
    revision: str
    created_at: datetime
    tables: list[TableDump]
    num_files: int
    num_bytes: int
    file_list: str
    lost_files: list[StoredFile]

    def rows_in(self, table: str) -> int:
        return next((dumped.rows for dumped in self.tables if dumped.name == table), 0)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Whole or not at all, and after everything else is on disk."""
    partial = folder / f".{MANIFEST}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    partial.chmod(0o600)
    sync(partial)
    partial.rename(folder / MANIFEST)
    sync(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup. Raises Rejected for a folder that is no finished backup, or one of another format, and
    for names of tables that could lead out of the folder."""
    try:
        content = (folder / MANIFEST).read_bytes()
    except OSError:
        raise Rejected(f"{folder} is not a finished backup: it has no {MANIFEST}. Take another one.") from None
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(f"{folder}: its {MANIFEST} cannot be read ({error}). Take another backup.") from None
    if manifest.format != FORMAT:
        raise Rejected(f"{folder} has format {manifest.format}: restore it with ragkv {manifest.ragkv}")
    if wrong := next((dumped.name for dumped in manifest.tables if not _TABLE.fullmatch(dumped.name)), None):
        raise Rejected(f"{folder}: its {MANIFEST} names a table {wrong[:80]!a}. Take another backup.")
    return manifest


def check(folder: Path, manifest: Manifest) -> None:
    """Hold every table and every file against its hash. Raises Rejected with the first that is missing or differs."""
    for dumped in manifest.tables:
        _check_hash(table_file(folder / TABLES, dumped.name), dumped.sha256)
    _check_hash(folder / FILE_LIST, manifest.file_list)
    stored = FileStore(folder / FILES)
    for file in listed_files(folder):
        _check_hash(stored.path(*file), file.sha256)


def listed_files(folder: Path) -> Iterator[StoredFile]:
    """The uploaded files of a backup. Raises Rejected for names that are none of this service's."""
    decoder = msgspec.json.Decoder(StoredFile)
    with (folder / FILE_LIST).open("rb") as lines:
        for line in lines:
            with suppress(msgspec.DecodeError):
                file = decoder.decode(line)
                if is_id(file.tenant_id) and is_hash(file.sha256):
                    yield file
                    continue
            raise Rejected(f"{folder / FILE_LIST} names no file of a tenant: {line[:200]!a}. Take another backup.")


def hash_of(path: Path) -> str:
    """SHA-256. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_hash(path: Path, expected: str) -> None:
    try:
        digest = hash_of(path)
    except OSError as error:
        raise Rejected(f"the backup is incomplete: {path}: {error.strerror}. Take another one.") from None
    if digest != expected:
        raise Rejected(f"the backup is damaged: {path} does not match the manifest. Take another one.")
