"""A backup taken while the service runs: a consistent snapshot of the database, and the uploaded files that it
refers to."""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragkv.errors import Conflict, Rejected
from ragkv.files_io import make_folder, sync
from ragkv.ids import utc_now
from ragkv.service.backup.backup_format import (
    FILE_LIST,
    FILES,
    TABLES,
    Manifest,
    hash_of,
    write_manifest,
)
from ragkv.service.backup.dump import dump, reflected, snapshot
from ragkv.service.base.database import Database
from ragkv.service.base.file_store import FileStore, StoredFile
from ragkv.service.base.migrate import revision_of
from ragkv.service.documents.statements import named_files

if TYPE_CHECKING:
    from sqlalchemy import Connection

log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Snapshots to try: files that are deleted between a snapshot and their copy need another one."""


def backup(folder: Path, database: Database, files: FileStore) -> Manifest:
    """Write a backup to a folder that is empty or not there.

    KV is left out: it is made again from the documents. Raises Rejected for a folder with something in it and for a
    database without tables. What was written is removed when it fails; a process that is killed leaves a folder
    without a manifest, which `restore` refuses.
    """
    make_folder(folder)
    if any(folder.iterdir()):
        raise Rejected(f"{folder} is not empty: name a new folder for the backup")
    folder.chmod(0o700)
    for name in (TABLES, FILES):
        (folder / name).mkdir(mode=0o700)
    try:
        return _write(folder, database, files)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(folder: Path, database: Database, source: FileStore) -> Manifest:
    target = FileStore(folder / FILES)
    absent = set[StoredFile]()
    for _ in range(ATTEMPTS):
        with snapshot(database) as connection:
            revision = revision_of(connection)
            if revision is None:
                raise Rejected(
                    "the database has no tables yet, so there is nothing to back up: are RAGKV_DATA_DIR and "
                    "RAGKV_DATABASE_URL those of the service?"
                )
            files = {StoredFile(*row) for row in connection.execute(named_files(tables=reflected(connection)))}
            if files:
                source.check_there()
            missing = {file for file in files if not _take(file, source, target)}
            if missing <= absent:  # nothing, or what an earlier snapshot missed too: lost long ago
                return _finish(folder, files - missing, missing, revision, connection)
            absent = missing  # most likely deleted since the snapshot: the next one does not name it
    raise Conflict("files are being deleted faster than they can be copied: try again when the service is less busy")


def _finish(
    folder: Path, files: set[StoredFile], lost: set[StoredFile], revision: str, connection: "Connection"
) -> Manifest:
    paths = {FileStore(folder / FILES).path(*file) for file in files}
    for path in _all_files(folder / FILES):
        if path.with_suffix("") not in paths:  # copied for an earlier snapshot, and not named by this one
            path.unlink()
    file_list = b"".join(msgspec.json.encode(file) + b"\n" for file in sorted(files))
    (folder / FILE_LIST).write_bytes(file_list)
    manifest = Manifest(
        ragkv=version("ragkv"),
        revision=revision,
        created_at=utc_now(),
        tables=dump(connection, folder / TABLES),
        num_files=len(files),
        num_bytes=sum(path.stat().st_size for path in _all_files(folder / FILES)),
        file_list=hashlib.sha256(file_list).hexdigest(),
        lost_files=sorted(lost),
    )
    # Readable by this user alone, and on disk.
    folders = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    for path in (*(folder / TABLES).iterdir(), folder / FILE_LIST, *folders):
        path.chmod(0o700 if path.is_dir() else 0o600)
        sync(path)
    write_manifest(folder, manifest)
    return manifest


def _take(file: StoredFile, source: FileStore, target: FileStore) -> bool:
    """Copy one file, by a link where the folders share a disk: it is never written to again. False if there is none.

    Bytes that are not what their name says count as none.
    """
    path = target.path(*file)
    if path.exists():  # taken for an earlier snapshot
        return True
    make_folder(path.parent)
    try:
        _link_or_copy(source.path(*file), path)
    except FileNotFoundError:
        return False
    if hash_of(path) == file.sha256:
        if (derived := source.beside(*file)) is not None:
            target.keep_beside(*file, derived)
        return True
    log.warning("the uploaded file %s of tenant %s is damaged: left out", file.sha256, file.tenant_id)
    path.unlink()
    return False


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)
        target.chmod(0o600)
        sync(target)


def _all_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
