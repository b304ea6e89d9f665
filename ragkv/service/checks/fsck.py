"""Consistency checks across rows, files, KV and points, and repairs."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ragkv.files_io import remove_files
from ragkv.ids import batched
from ragkv.retrieve.index import Held
from ragkv.service.base.database import Database, advisory_lock, now_of
from ragkv.service.base.file_store import GONE, FileStore, StoredFile
from ragkv.service.base.tables import DocumentRow, FileRow
from ragkv.service.checks.check import ConsistencyCheck, Grace
from ragkv.service.checks.cleaning import delete_points, discard_files, write_points
from ragkv.service.checks.consistency_statements import (
    close_jobs,
    fail_document,
    forget_earlier_files,
    jobs_of_finished,
    jobs_without_worker,
    lost_documents,
    lost_earlier_files,
    lost_uploads,
    miscounted_documents,
    queue_jobs,
    release,
    stale_leases,
)
from ragkv.service.checks.kv_checks import DAMAGED_KV, KV_CHECKS
from ragkv.service.checks.leftovers import missing_files, missing_points, stray_points, unnamed_files
from ragkv.service.documents.lease import LEASE
from ragkv.service.documents.removal import uploads_lock
from ragkv.service.documents.statements import start_over
from ragkv.service.parts import Parts
from ragkv.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Select, Update

_SEPARATOR = "/"
POINT_CHECKS = (
    ConsistencyCheck(
        "stray_points", "vectors in Qdrant of documents that are gone", "removed",
        lambda grace, parts: stray_points(parts.database, parts.server_index),
        lambda document_ids, grace, parts: delete_points(document_ids, parts.server_index),
    ),
    ConsistencyCheck(
        "missing_points", "documents whose vectors in Qdrant do not match their chunks", "written again",
        lambda grace, parts: [_SEPARATOR.join(held) for held in missing_points(parts.database, parts.server_index)],
        lambda names, grace, parts: write_points([Held(*name.split(_SEPARATOR)) for name in names], parts.server_index, parts.source),
    ),
)  # fmt: skip
"""Points on the Qdrant server against the chunks in the database."""

CLOCK_STEP = LEASE * 2
"""A lease that ends later than this was taken by a clock that ran ahead."""


def _without_file(of_file: "Callable[[str, str], Select[str]]", database: Database, files: FileStore) -> Sequence[str]:
    """Ids of the rows, as `of_file` finds them, of every file that is gone."""
    missing = missing_files(database, files)
    return [row_id for file in missing for row_id in database.scalars(of_file(*file))]


def _fail(document_ids: Sequence[str], database: Database, files: FileStore) -> None:
    """Fail documents whose file is still gone. They answer from their chunks; the same bytes uploaded again bring them
    back."""
    for document_id in document_ids:
        with database.writing() as session:
            document = session.get(DocumentRow, document_id)
            if document is None:
                continue
            advisory_lock(session, uploads_lock(document.tenant_id))
            document = session.get(DocumentRow, document_id, populate_existing=True)
            if document is not None and not files.path(document.tenant_id, document.sha256).is_file():
                for change in fail_document(document_id, GONE):
                    session.execute(change)


def _forget(file_ids: Sequence[str], grace: Grace, parts: Parts) -> None:
    """Delete uploads whose file is still gone. Documents that were made of them stay."""
    for file_id in file_ids:
        with parts.database.writing() as session:
            file = session.get(FileRow, file_id)
            if file is not None:
                advisory_lock(session, uploads_lock(file.tenant_id))
                if not parts.files.path(file.tenant_id, file.sha256).is_file():
                    session.delete(file)


FILE_CHECKS = (
    ConsistencyCheck(
        "documents_without_file", "documents whose file is gone", "failed, with the reason",
        lambda grace, parts: _without_file(lost_documents, parts.database, parts.files),
        lambda ids, grace, parts: _fail(ids, parts.database, parts.files),
    ),
    ConsistencyCheck(
        "outdated_without_file", "documents that answer from an earlier file, which is gone", "not shown by their pages any more",
        lambda grace, parts: _without_file(lost_earlier_files, parts.database, parts.files),
        lambda ids, grace, parts: parts.database.execute(forget_earlier_files(ids)),
    ),
    ConsistencyCheck(
        "uploads_without_file", "uploaded files whose content is gone", "removed",
        lambda grace, parts: _without_file(lost_uploads, parts.database, parts.files),
        _forget,
    ),
    ConsistencyCheck(
        "unnamed_files", "files that no document or upload refers to", "removed",
        lambda grace, parts: [_SEPARATOR.join(file) for file in unnamed_files(grace.uploads_before, parts.database, parts.files)],
        lambda names, grace, parts: discard_files([StoredFile(*name.split(_SEPARATOR)) for name in names], parts.removal),
    ),
    ConsistencyCheck(
        "abandoned_uploads", "uploads that were never finished", "removed",
        lambda grace, parts: [path.name for path in parts.files.unfinished(grace.uploads_before)],
        lambda names, grace, parts: remove_files(parts.files.unfinished(grace.uploads_before)),
    ),
)  # fmt: skip
"""Uploaded files against the rows that refer to them."""


def _now(database: Database) -> datetime:
    """By the database's clock, as leases are."""
    with database.reading() as session:
        return now_of(session)


def _lease_ends(grace: Grace, database: Database) -> tuple[datetime, datetime]:
    """The moments between which the lease of a worker that is there ends."""
    moment = _now(database)
    return moment - grace.rows, moment + CLOCK_STEP


def _repair(statement: "Callable[..., Update]", ids: Sequence[str], database: Database, *moments: datetime) -> None:
    """Execute a statement about rows of these ids, some at a time."""
    database.execute(*(statement(batch, *moments) for batch in batched(ids)))


ROW_CHECKS = (
    ConsistencyCheck(
        "stale_leases", "documents held by a worker that is gone, or too long because a clock ran ahead", "released",
        lambda grace, parts: parts.database.scalars(stale_leases(*_lease_ends(grace, parts.database))),
        lambda ids, grace, parts: _repair(release, ids, parts.database, *_lease_ends(grace, parts.database)),
    ),
    ConsistencyCheck(
        "miscounted_documents", "documents whose recorded number of chunks is wrong", "read again",
        lambda grace, parts: parts.database.scalars(miscounted_documents()),
        lambda ids, grace, parts: parts.database.execute(start_over(*ids)),
    ),
    ConsistencyCheck(
        "unclosed_jobs", "open jobs of documents that are ready or failed", "closed",
        lambda grace, parts: parts.database.scalars(jobs_of_finished(_now(parts.database) - grace.rows)),
        lambda ids, grace, parts: parts.database.execute(*(change for batch in batched(ids) for change in close_jobs(batch))),
    ),
    ConsistencyCheck(
        "unheld_jobs", "running jobs of documents that no worker holds", "queued",
        lambda grace, parts: parts.database.scalars(jobs_without_worker(_now(parts.database) - grace.rows)),
        lambda ids, grace, parts: _repair(queue_jobs, ids, parts.database, _now(parts.database) - grace.rows),
    ),
)  # fmt: skip
"""Leases, jobs and counts of documents against each other."""


class Finding(msgspec.Struct, frozen=True):
    """The names that one check found, and the remedy that was or would be applied."""

    check: str
    about: str
    remedy: str
    found: list[str]
    mended: bool


def checks(settings: Settings, *, quick: bool) -> Sequence[ConsistencyCheck]:
    """Files first, then what is made of them: mending one may leave work for the next. `quick` reads no KV."""
    damaged = () if quick else (DAMAGED_KV,)
    points = POINT_CHECKS if settings.qdrant_url is not None else ()
    return (*FILE_CHECKS, *ROW_CHECKS, *damaged, *KV_CHECKS, *points)


def examine(grace: Grace, parts: Parts, *, quick: bool = False) -> Iterator[Finding]:
    """Look, and change nothing. Raises Unavailable when a part is away."""
    for check in checks(parts.settings, quick=quick):
        yield _finding(check, list(check.find(grace, parts)), mended=False)


def repair(grace: Grace, parts: Parts, *, quick: bool = False) -> Iterator[Finding]:
    """Look, and mend what is found."""
    if parts.qdrant is not None:
        parts.qdrant.ensure(parts.question_encoder.dim)
    for check in checks(parts.settings, quick=quick):
        names = list(check.find(grace, parts))
        if names:
            check.mend(names, grace, parts)
        yield _finding(check, names, mended=bool(names))


def _finding(check: ConsistencyCheck, names: list[str], *, mended: bool) -> Finding:
    return Finding(check.name, check.about, check.remedy, names, mended)
