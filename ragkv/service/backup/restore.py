"""Restore of a backup, all or nothing, into either kind of database, and its consequences, which can be shown first."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ragkv.errors import Conflict, Rejected, Unavailable
from ragkv.files_io import make_folder
from ragkv.ids import utc_now
from ragkv.service.audit.log import COMMAND_LINE
from ragkv.service.audit.statements import add_event_of_all_tenants
from ragkv.service.backup.backup_format import FILES, TABLES, Manifest, check, listed_files, read_manifest
from ragkv.service.backup.dump import TableDump, clear, dump, lines_of, load, replacing, snapshot, tables_with_rows
from ragkv.service.backup.restored import (
    UNHELD,
    deleted_ids,
    hashes_by_id,
    make_consistent,
    reinstate,
    set_aside,
    valid_and_ended_keys,
    versions,
)
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.file_store import FileStore, StoredFile
from ragkv.service.base.migrate import check_known, migrate, revisions
from ragkv.service.base.tenants import tenant_ids
from ragkv.service.checks.cleaning import renew_points
from ragkv.service.documents.removal import discard_unnamed, forget_stale_answers
from ragkv.service.parts import Parts
from ragkv.service.webhooks.statements import PENDING
from ragkv.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

NEW_SERVICE = {"tenants", "collections"}
"""Tables that have rows in a new service."""


class Consequences(msgspec.Struct, frozen=True, kw_only=True):
    """Consequences of restoring a backup of the moment `made_at`.

    documents: that the service has afterwards. reappearing: those of them that it does not have now. older_files: those
        for which it has another file now. deleted: documents of the backup that were deleted since; they come back only
        with `with_deleted`, and count as reappearing then. lost: documents that only the service has.
    valid_keys: ids of API keys that become valid, and are not valid now. revoked_keys: keys of the backup that stay
        revoked. lost_keys: valid keys that only the service has.
    unsent: messages of webhooks that were pending.
    """

    made_at: datetime
    documents: int
    reappearing: int
    older_files: int
    deleted: int
    lost: int
    valid_keys: list[str]
    revoked_keys: int
    lost_keys: int
    unsent: int


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore. `points`: vectors written to the Qdrant server, None without one. `sessions_ended`:
    whether Redis forgot dashboard sessions and answers; while it is away they stay."""

    documents: int
    files: int
    lost_files: int
    points: int | None
    sessions_ended: bool


def consequences(
    made_at: datetime, dumps: Sequence[TableDump], tables: Path, connection: "Connection", *, with_deleted: bool
) -> Consequences:
    """Compare the tables of a backup, in the form of the newest schema, with those of the database."""
    here = hashes_by_id(connection)
    of_backup = {line["id"]: (line["sha256"], line["collection_id"]) for line in _lines("documents", dumps, tables)}
    listed = set() if with_deleted else deleted_ids(connection)
    deleted = {row_id for row_id, (_, collection_id) in of_backup.items() if {row_id, collection_id} & listed}
    valid, revoked = valid_and_ended_keys(connection)
    moment = utc_now()
    valid_in_backup = {
        key["id"]
        for key in _lines("api_keys", dumps, tables)
        if key["revoked_at"] is None
        and (key["expires_at"] is None or datetime.fromisoformat(key["expires_at"]) > moment)
    }
    return Consequences(
        made_at=made_at,
        documents=len(of_backup.keys() - deleted),
        reappearing=len(of_backup.keys() - deleted - here.keys()),
        older_files=sum(here.get(row_id, sha256) != sha256 for row_id, (sha256, _) in of_backup.items()),
        deleted=len(deleted),
        lost=len(here.keys() - of_backup.keys()),
        valid_keys=sorted(valid_in_backup - revoked - valid),
        revoked_keys=len(valid_in_backup & revoked),
        lost_keys=len(valid - valid_in_backup),
        unsent=sum(line["status"] == PENDING for line in _lines("webhook_deliveries", dumps, tables)),
    )


def restore(
    folder: Path,
    parts: Parts,
    *,
    replace: bool = False,
    with_deleted: bool = False,
    announce: Callable[[Consequences], None] = lambda consequences: None,
) -> Restored:
    """Put a backup back, after checking every byte of it. Works while the service runs; restart its processes after.

    API keys that the service has revoked stay revoked, and what was deleted stays deleted, except `with_deleted`. Audit
    events stay, and the restore is one. Dashboard sessions end. announce: called with the consequences before anything
    changes; if it raises, nothing does.

    Raises Rejected for a backup that is unfinished, damaged or from a newer version, Conflict for a service that holds
    data already, unless it is to be replaced, Unavailable when the index is away. Nothing has changed then; only an
    index that goes away in the middle leaves points for `fsck` to write.
    """
    manifest = read_manifest(folder)
    check(folder, manifest)
    check_known(manifest.revision, f"{folder}, made by ragkv {manifest.ragkv},")
    make_folder(parts.settings.data_dir)
    parts.prepare_database()
    if parts.qdrant is not None:  # vectors are written last: a server that is away must be known before that
        parts.qdrant.ensure(parts.question_encoder.dim)
    with snapshot(parts.database) as connection:
        _refuse_filled(connection, replace)
    with _at_head(folder, manifest, parts.settings) as (tables, dumps):
        with snapshot(parts.database) as connection:
            earlier_tenants = set(connection.scalars(tenant_ids()))
            expected = consequences(manifest.created_at, dumps, tables, connection, with_deleted=with_deleted)
        announce(expected)
        source = FileStore(folder / FILES)
        for file in listed_files(folder):
            _put_back(file, source, parts.files)
        deleted = _exchange(tables, dumps, manifest, parts.database, replace=replace, with_deleted=with_deleted)
        for file in listed_files(folder):  # a worker's sweep removes old files that no row names, as none did until now
            if not parts.files.path(*file).is_file():
                _put_back(file, source, parts.files)
    gone_tenants = earlier_tenants - set(parts.database.scalars(tenant_ids()))
    for tenant_id in gone_tenants:  # no sweep takes files of a tenant that it does not know
        shutil.rmtree(parts.files.folder / tenant_id, ignore_errors=True)
    for tenant_id, files in groupby(sorted(deleted), key=lambda file: file.tenant_id):
        discard_unnamed(tenant_id, [file.sha256 for file in files], parts.database, parts.files)
    sessions_ended = _forget_in_redis(parts)
    points = renew_points(parts.database, parts.server_index, parts.source)
    return Restored(expected.documents, manifest.num_files, len(manifest.lost_files), points, sessions_ended)


def _put_back(file: StoredFile, source: FileStore, target: FileStore) -> None:
    """A copy, not a link: the backup stays as it is. Equal names mean equal bytes."""
    with source.path(*file).open("rb") as body, target.receive(body, sys.maxsize) as received:
        target.keep(file.tenant_id, received)
    if (derived := source.beside(*file)) is not None:
        target.keep_beside(*file, derived)


def _exchange(
    tables: Path,
    dumps: Sequence[TableDump],
    manifest: Manifest,
    database: Database,
    *,
    replace: bool,
    with_deleted: bool,
) -> list[StoredFile]:
    """Returns the files of what was deleted again."""
    with replacing(database) as connection:
        _refuse_filled(connection, replace)
        earlier = versions(connection)
        with set_aside(connection) as copies:
            clear(connection)
            load(connection, dumps, tables, UNHELD)
            deleted = reinstate(connection, copies, with_deleted=with_deleted)
        make_consistent(connection, earlier)
        action = f"Restore the backup of {manifest.created_at:%Y-%m-%d %H:%M} UTC"
        add_event_of_all_tenants(connection, action=action, route="ragkv restore", client=COMMAND_LINE)
        return deleted


def _forget_in_redis(parts: Parts) -> bool:
    """End all sessions and forget answers, also in the embedded server, which is started for that. False while Redis is
    away."""
    embedded = EmbeddedRedis(parts.settings) if parts.settings.redis_url is None else None
    if embedded is not None and not embedded.has_data:
        return True
    try:
        if embedded is not None:
            embedded.start()
        parts.sessions.end_all()
        forget_stale_answers(parts.database, parts.answer_ring)
        for tenant_id, collection_id in parts.recent_answers.collections():
            parts.recent_answers.forget(tenant_id, collection_id)
    except (Unavailable, Rejected):
        return False
    finally:
        if embedded is not None:
            embedded.stop()
    return True


def _refuse_filled(connection: "Connection", replace: bool) -> None:
    filled = set(tables_with_rows(connection)) - NEW_SERVICE
    if filled and not replace:
        raise Conflict(
            f"the database already holds data ({', '.join(sorted(filled))}): restore into a new one, or pass "
            "--replace, which deletes that data"
        )


@contextmanager
def _at_head(folder: Path, manifest: Manifest, settings: Settings) -> Iterator[tuple[Path, Sequence[TableDump]]]:
    """The tables in the form of the newest schema: those of an older version go through a database of their own."""
    if manifest.revision == revisions()[0]:
        yield folder / TABLES, manifest.tables
        return
    scratch = Path(tempfile.mkdtemp(prefix="restore-", dir=settings.data_dir))  # mode 0700
    url = f"sqlite:///{scratch / 'older.sqlite3'}"
    try:
        migrate(url, manifest.revision)
        with closing(Database(url)) as older:
            with replacing(older) as connection:
                load(connection, manifest.tables, folder / TABLES, {})
            migrate(url)
            with snapshot(older) as connection:
                dumps = dump(connection, scratch)
        yield scratch, dumps
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _lines(name: str, dumps: Sequence[TableDump], tables: Path) -> Iterator[dict[str, Any]]:
    """None for a table that the backup does not have."""
    return (line for dumped in dumps if dumped.name == name for line in lines_of(tables, dumped))
