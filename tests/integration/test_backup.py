"""Backups: taken while the service runs, put back whole into a database of either kind, or refused."""

import io
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import delete, select, update

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.cli.backup import backup as backup_command
from ragkv.cli.backup import restore as restore_command
from ragkv.errors import Conflict, NotFound, Rejected, Unauthorised, Unavailable
from ragkv.ids import new_id, utc_now
from ragkv.service.audit.log import Change, all_audit, record_change
from ragkv.service.audit.statements import AuditFilter
from ragkv.service.backup import restore as restoring
from ragkv.service.backup.backup import backup
from ragkv.service.backup.dump import LEFT_OUT, snapshot, tables_of
from ragkv.service.backup.restore import Consequences, restore
from ragkv.service.backup.restored import NOT_SENT
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.file_store import FileStore, StoredFile
from ragkv.service.base.status import Status
from ragkv.service.base.tables import (
    ApiKeyRow,
    CollectionRow,
    DataSourceRow,
    DeletionRow,
    DocumentRow,
    EvaluationQuestionRow,
    EvaluationRow,
    FeedbackRow,
    FileRow,
)
from ragkv.service.base.tenants import collection_ref, ensure_collection, tenant_secret
from ragkv.service.checks.cleaning import clean, collect_garbage
from ragkv.service.checks.pruning import DELETIONS_KEPT, KEYS_KEPT, prune
from ragkv.service.collections.collections import delete_in_batches, make_collection
from ragkv.service.data_sources.data_sources import remove_data_source
from ragkv.service.documents.documents import accept_document, delete_document, document_view, store_document
from ragkv.service.documents.listing import list_chunks
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.evaluations.statements import QUEUED, next_question
from ragkv.service.files.attachments import delete_file
from ragkv.service.keys.keys import authenticate, issue_key, list_all_keys, revoke_key
from ragkv.service.kv_admin.entry_statements import all_entries
from ragkv.service.kv_admin.eviction import NOTHING, evict_entries
from ragkv.service.parts import Parts
from ragkv.service.questions.feedback import remove_feedback
from ragkv.service.webhooks.statements import READY_EVENT, announce
from ragkv.service.webhooks.webhooks import delete_webhook, list_deliveries, list_webhooks, make_webhook
from ragkv.settings import Settings
from tests.conftest import ingest_over, lend_models
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import ADA

ALAN = b"# Alan Turing\n\nAlan Turing wrote of machines that compute, and of whether they think.\n"

Maker = Callable[[str, str], Parts]


@pytest.fixture
def make(tmp_path: Path, settings: Settings, loaded: IngestParts) -> Iterator[Maker]:
    """Makes parts with a folder of their own over a database."""
    made: list[Parts] = []

    def make(name: str, database_url: str) -> Parts:
        parts = Parts(msgspec.structs.replace(settings, data_dir=tmp_path / name, database_url=database_url))
        lend_models(parts, loaded)
        parts.prepare()
        made.append(parts)
        return parts

    yield make
    for parts in made:
        parts.close()


@pytest.fixture
def source(make: Maker, database_url: str) -> Parts:
    """A service over each kind of database in turn."""
    return make("source", database_url)


@pytest.fixture
def empty(make: Maker, tmp_path: Path) -> Parts:
    """A new service over SQLite."""
    return make("target", f"sqlite:///{tmp_path / 'target.sqlite3'}")


def store(parts: Parts, body: bytes = ADA, name: str = "ada.md", **metadata: object) -> str:
    return store_document(parts.default_collection, name, io.BytesIO(body), parts.intake, metadata).document_id


def rows(parts: Parts) -> dict[str, list[tuple[object, ...]]]:
    with snapshot(parts.database) as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in tables_of(connection)
        }


def test_a_backup_moves_between_databases_and_its_documents_answer_at_once(
    source: Parts, make: Maker, postgres_url: str, tmp_path: Path, loaded: IngestParts
):
    """From SQLite to PostgreSQL, and from PostgreSQL to SQLite; the KV is made again by the worker."""
    document_id = store(source, year=1843, tags=["engine", "Böhm"])
    assert ingest_document(document_id, ingest_over(source, loaded)) is IngestOutcome.READY
    issued = issue_key_by_name("guests", "laptop", ("read",), source.database, 30)
    manifest = backup(tmp_path / "backup", source.database, source.files)
    is_postgres = source.database.engine.dialect.name == "postgresql"
    target = make("target", f"sqlite:///{tmp_path / 'target.sqlite3'}" if is_postgres else postgres_url)
    restored = restore(tmp_path / "backup", target)

    assert (restored.documents, restored.files, manifest.num_bytes) == (1, 1, len(ADA))
    ref = source.default_collection
    view = document_view(ref.tenant_id, document_id, target.database)
    assert (view.status, view.metadata) == (Status.SEARCHABLE, {"year": 1843, "tags": ["engine", "Böhm"]})
    assert tenant_secret(ref.tenant_id, target.database) == ref.secret
    assert [key.id for _, key in list_all_keys(target.database)] == [issued.view.id]
    assert target.files.path(ref.tenant_id, _sha256(target, document_id)).read_bytes() == ADA
    found = target.retriever.search(ref.tenant_id, ref.collection_id, "first program", 3, 1)
    assert "analytical engine" in found[0].chunk.text

    assert stuck_ids(target.database) == [document_id]
    assert ingest_document(document_id, ingest_over(target, loaded)) is IngestOutcome.READY
    assert set(target.kv_store.keys()) == set(source.kv_store.keys())


def test_every_row_comes_back_as_it_was(source: Parts, empty: Parts, tmp_path: Path):
    """But for what says where a document stands: nobody holds it, and its collection has a new generation; and for the
    event of the audit log that says so."""
    store(source, year=1843)
    store(source, ALAN, "alan.md")
    issue_key_by_name("guests", "laptop", ("read", "write"), source.database, None)
    manifest = backup(tmp_path / "backup", source.database, source.files)
    restore(tmp_path / "backup", empty)

    before, after = rows(source), rows(empty)
    restored = f"Restore the backup of {manifest.created_at:%Y-%m-%d %H:%M} UTC"
    assert [row[4] for row in after.pop("audit_events")] == [restored] * len(after["tenants"])
    before.pop("audit_events")
    generations = [row[4] for row in after.pop("collections")]
    assert min(generations) > 1_000_000_000 > max(row[4] for row in before.pop("collections"))
    assert [[_naive(row) for row in table] for table in after.values()] == [
        [_naive(row) for row in table] for table in before.values()
    ]
    assert not set(LEFT_OUT) & set(before)


def test_an_evaluation_that_was_not_done_goes_on_with_its_questions(
    source: Parts, make: Maker, postgres_url: str, tmp_path: Path
):
    """From SQLite to PostgreSQL, and from PostgreSQL to SQLite."""
    ref = source.default_collection
    run = EvaluationRow(
        tenant_id=ref.tenant_id, collection_id=ref.collection_id, kind="search", source="given", state=QUEUED, total=1
    )
    with source.database.writing() as session:
        session.add(run)
        session.flush()
        session.add(EvaluationQuestionRow(evaluation_id=run.id, ordinal=0, given={"question": "Who?"}))
    backup(tmp_path / "backup", source.database, source.files)
    is_postgres = source.database.engine.dialect.name == "postgresql"
    target = make("target", f"sqlite:///{tmp_path / 'target.sqlite3'}" if is_postgres else postgres_url)
    restore(tmp_path / "backup", target)

    with target.database.reading() as session:
        assert session.scalars(next_question(run.id)).one().given == {"question": "Who?"}


def test_nobody_else_can_read_a_backup_and_it_says_that_it_holds_secrets(parts: Parts, tmp_path: Path):
    store(parts)
    backup(tmp_path / "backup", parts.database, parts.files)

    inside = list((tmp_path / "backup").rglob("*"))
    assert all(path.stat().st_mode & 0o077 == 0 for path in [tmp_path / "backup", *inside])
    assert "secrets" in json.loads((tmp_path / "backup" / "manifest.json").read_text())["notice"]


@pytest.mark.parametrize("part", ["manifest.json", "tables/chunks.jsonl", "files.jsonl", "files"])
def test_a_backup_with_a_part_missing_is_refused_and_nothing_changes(
    parts: Parts, empty: Parts, tmp_path: Path, part: str
):
    folder = _backup(parts, tmp_path)
    path = folder / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()

    with pytest.raises(Rejected, match="another"):
        restore(folder, empty)
    assert rows(empty)["documents"] == []


@pytest.mark.parametrize("pattern", ["manifest.json", "tables/documents.jsonl", "files.jsonl", "files/*/*/*"])
def test_a_backup_with_a_damaged_byte_is_refused_and_nothing_changes(
    parts: Parts, empty: Parts, tmp_path: Path, pattern: str
):
    folder = _backup(parts, tmp_path)
    (path,) = folder.glob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x80
    path.unlink()  # a file of the backup may be the service's own, linked
    path.write_bytes(content)

    with pytest.raises(Rejected, match="another"):
        restore(folder, empty)
    assert rows(empty)["documents"] == []


def test_a_backup_of_a_newer_or_unreleased_version_is_refused(parts: Parts, empty: Parts, tmp_path: Path):
    folder = _backup(parts, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    for revision, remedy in (("9999", "use the version of ragkv that wrote it"), ("0020", "upgrade it with commit")):
        (folder / "manifest.json").write_text(json.dumps(manifest | {"revision": revision, "ragkv": "7.0"}))
        with pytest.raises(Rejected, match=rf"made by ragkv 7\.0, has .*{remedy}"):
            restore(folder, empty)


def test_a_service_that_holds_data_is_restored_only_when_told_to_replace_it(source: Parts, make: Maker, tmp_path: Path):
    kept = store(source)
    folder = _backup(source, tmp_path, upload=False)
    later = store(source, ALAN, "alan.md")

    with pytest.raises(Conflict, match="--replace"):
        restore(folder, source)
    assert document_view(source.default_collection.tenant_id, later, source.database).name == "alan.md"

    restore(folder, source, replace=True)
    assert document_view(source.default_collection.tenant_id, kept, source.database).name == "ada.md"
    with pytest.raises(NotFound):
        document_view(source.default_collection.tenant_id, later, source.database)


def test_files_of_tenants_that_the_backup_does_not_have_go_with_them(parts: Parts, empty: Parts, tmp_path: Path):
    store(parts)
    folder = _backup(parts, tmp_path, upload=False)
    store(empty)
    assert empty.files.tenants() == {empty.default_collection.tenant_id}

    restore(folder, empty, replace=True)

    assert empty.files.tenants() == {parts.default_collection.tenant_id}


def test_a_backup_with_another_data_folder_is_refused_and_leaves_nothing(parts: Parts, tmp_path: Path):
    """Or with none at all: it would lack every file."""
    store(parts)
    with (
        closing(Database(f"sqlite:///{tmp_path / 'empty.sqlite3'}")) as empty,
        pytest.raises(Rejected, match="DATA_DIR"),
    ):
        backup(tmp_path / "backup", empty, parts.files)
    with pytest.raises(Unavailable, match="RAGKV_DATA_DIR"):
        backup(tmp_path / "backup", parts.database, FileStore(tmp_path / "elsewhere"))

    assert not (tmp_path / "backup").exists()


def test_what_a_process_remembers_is_never_taken_for_what_was_restored(
    parts: Parts, ingest: IngestParts, tmp_path: Path
):
    """A search mirrors documents by version and kept answers belong to a generation: both are new after a restore."""
    document_id = store(parts)
    ingest_document(document_id, ingest)
    folder = _backup(parts, tmp_path, upload=False)
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(version=7))
        session.execute(update(CollectionRow).values(generation=40))
    restore(folder, parts, replace=True)

    with parts.database.reading() as session:
        assert session.scalars(select(DocumentRow.version)).all() == [8]
        assert session.scalars(select(CollectionRow.generation)).all()[0] > 40


def test_kv_that_is_still_there_outlives_the_first_sweep_and_is_used_again(
    parts: Parts, ingest: IngestParts, tmp_path: Path
):
    """Also files that are older than those which a sweep takes for left over."""
    document_id = store(parts)
    ingest_document(document_id, ingest)
    folder = _backup(parts, tmp_path, upload=False)
    for path in parts.settings.kv_dir.rglob("*.safetensors"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)

    def written() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in parts.settings.kv_dir.rglob("*.safetensors")}

    before = written()
    restore(folder, parts, replace=True)

    assert collect_garbage(parts) == NOTHING
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    assert written() == before != {}


def test_kv_of_a_document_that_nobody_takes_up_again_goes_with_the_first_sweep(
    parts: Parts, ingest: IngestParts, tmp_path: Path
):
    """Nothing would count it, or evict it when room is wanted."""
    document_id = store(parts, b"\n\n".join(b"# Part %d\n\n" % n + ADA for n in range(3)))
    ingest_document(document_id, ingest)
    with parts.database.reading() as session:
        entries = [(key, int(size)) for key, size in session.execute(all_entries())]
    evict_entries(entries[:1], parts.database, parts.kv_store)
    folder = _backup(parts, tmp_path, upload=False)
    for path in parts.settings.kv_dir.rglob("*.safetensors"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)

    restore(folder, parts, replace=True)

    assert collect_garbage(parts).files == len(entries) - 1
    assert stuck_ids(parts.database) == []


def test_kv_that_is_gone_is_said_to_be_coming_until_a_worker_has_made_it(
    parts: Parts, ingest: IngestParts, empty: Parts, tmp_path: Path, loaded: IngestParts
):
    document_id = store(parts)
    ingest_document(document_id, ingest)
    restore(_backup(parts, tmp_path, upload=False), empty)

    def states() -> set[str]:
        ref = parts.default_collection
        page = list_chunks(ref.tenant_id, document_id, 100, None, empty.database, empty.kv_store)
        return {chunk.kv.state for chunk in page.items}

    assert states() == {"pending"}
    ingest_document(document_id, ingest_over(empty, loaded))
    assert states() == {"stored"}


def test_what_was_revoked_or_deleted_since_stays_so_after_a_restore_over_the_service(source: Parts, tmp_path: Path):
    tenant_id, database = source.default_collection.tenant_id, source.database
    leaked, ended = (issue_key(tenant_id, name, ["read"], database) for name in ("leaked", "ended"))
    kept, gone = store(source), store(source, ALAN, "alan.md")
    file = (tenant_id, _sha256(source, gone))
    collection = make_collection(tenant_id, "old", database).id
    old = store_document(collection_ref(tenant_id, collection, database), "old.md", io.BytesIO(b"Old."), source.intake)
    webhook = make_webhook(tenant_id, "https://example.com/", None, frozenset(), database).webhook.id
    folder = _backup(source, tmp_path, upload=False)

    revoke_key(leaked.view.id, database)
    _remove_key_that_ended_long_ago(ended.view.id, database)
    delete_document(tenant_id, gone, source.removal)
    list(delete_in_batches(tenant_id, collection, source.removal))
    delete_webhook(tenant_id, webhook, database)
    restored = restore(folder, source, replace=True)

    assert (restored.documents, _document_ids(source)) == (1, [kept])
    assert (
        not source.files.path(*file).exists()
        and not source.files.path(tenant_id, old_hash := sha256(b"Old.").hexdigest()).exists()
    ), old_hash
    assert old.document_id not in _document_ids(source) and list_webhooks(tenant_id, database) == []
    for issued in (leaked, ended):
        with pytest.raises(Unauthorised, match="revoked"):
            authenticate(issued.key, database)


def test_everything_that_can_be_deleted_on_request_is_listed(source: Parts):
    ref, database = source.default_collection, source.database
    of = {"tenant_id": ref.tenant_id, "collection_id": ref.collection_id}
    file = FileRow(tenant_id=ref.tenant_id, sha256="0" * 64, name="a", num_bytes=1, purpose="assistants")
    folder = DataSourceRow(**of, location="file:///nowhere", interval_minutes=0)
    other = make_collection(ref.tenant_id, "other", database).id
    of_other = DataSourceRow(**of | {"collection_id": other}, location="file:///nowhere", interval_minutes=0)
    feedback = FeedbackRow(**of, answer_id=new_id(), question="", answer="", num_passages=0, rating="good", asked_at=utc_now())  # fmt: skip
    with database.writing() as session:
        session.add_all([file, folder, of_other, feedback])
    remove_data_source(ref.tenant_id, folder.id, database)
    next(delete_in_batches(ref.tenant_id, other, source.removal))
    remove_feedback(ref.tenant_id, feedback.answer_id, database)
    delete_file(ref.tenant_id, file.id, source.removal)

    with database.reading() as session:
        listed = {(row.kind, row.id) for row in session.scalars(select(DeletionRow))}
    assert listed == {
        ("data_sources", folder.id),
        ("data_sources", of_other.id),
        ("feedback", feedback.answer_id),
        ("files", file.id),
    }
    with database.writing() as session:
        session.execute(update(DeletionRow).values(at=utc_now() - DELETIONS_KEPT - timedelta(minutes=1)))
    prune(0, database)
    with database.reading() as session:
        assert session.scalars(select(DeletionRow)).all() == []


def test_deleted_documents_come_back_when_asked_for_and_then_stay(source: Parts, tmp_path: Path):
    """An accidental deletion; a restore of a later backup does not repeat it. Revoked keys stay revoked."""
    tenant_id = source.default_collection.tenant_id
    issued = issue_key(tenant_id, "leaked", ["read"], source.database)
    document_id = store(source)
    folder = _backup(source, tmp_path, upload=False)
    delete_document(tenant_id, document_id, source.removal)
    revoke_key(issued.view.id, source.database)

    assert restore(folder, source, replace=True, with_deleted=True).documents == 1
    backup(tmp_path / "later", source.database, source.files)
    assert restore(tmp_path / "later", source, replace=True).documents == 1
    assert source.files.path(tenant_id, _sha256(source, document_id)).read_bytes() == ADA
    with pytest.raises(Unauthorised, match="revoked"):
        authenticate(issued.key, source.database)


def test_the_audit_log_outlives_a_restore_and_has_it(source: Parts, tmp_path: Path):
    """Also that of a tenant which is newer than the backup."""
    tenant_id = source.default_collection.tenant_id
    for action in ("Before", "After"):
        record_change(Change(tenant_id, None, action, "x", "x"), source.database)
        if action == "Before":
            folder = _backup(source, tmp_path)
    newer = ensure_collection(source.database, "newer").tenant_id
    record_change(Change(newer, None, "Upload", "x", "x"), source.database)
    restore(folder, source, replace=True)

    def actions(tenant_id: str) -> list[str]:
        return [event.action.partition(" the ")[0] for event in all_audit(AuditFilter(tenant_id), source.database)]

    assert actions(tenant_id) == ["Restore", "After", "Before"]
    assert actions(newer) == ["Restore", "Upload"]
    assert tenant_id == source.default_collection.tenant_id


@pytest.mark.parametrize("is_running", [True, False])
def test_dashboard_sessions_end_with_a_restore(
    parts: Parts, redis_server: EmbeddedRedis, tmp_path: Path, is_running: bool
):
    folder = _backup(parts, tmp_path)
    token = parts.sessions.begin("a key")
    if not is_running:
        redis_server.stop()
    restored = restore(folder, parts, replace=True)
    if not is_running:
        redis_server.start()

    assert restored.sessions_ended and parts.sessions.holder(token) is None


def test_a_restore_says_that_sessions_go_on_while_redis_is_away(parts: Parts, tmp_path: Path):
    folder = _backup(parts, tmp_path)
    environment = _environment(parts) | {"RAGKV_REDIS_URL": f"unix://{tmp_path}/nowhere"}
    shown = CliRunner().invoke(restore_command, [str(folder), "--replace"], env=environment)

    assert shown.exit_code == 0, shown.output
    assert "sessions from before the restore have not ended" in shown.output


def test_messages_of_webhooks_that_were_pending_are_not_sent_again(source: Parts, tmp_path: Path):
    tenant_id, database = source.default_collection.tenant_id, source.database
    webhook = make_webhook(tenant_id, "https://example.com/", None, frozenset(), database).webhook.id
    document_id = store(source)
    with database.writing() as session:
        announce(session, document_id, READY_EVENT)
    folder = _backup(source, tmp_path, upload=False)
    restore(folder, source, replace=True)

    (delivery,) = list_deliveries(tenant_id, webhook, 10, None, database).items
    assert (delivery.status, delivery.error) == ("failed", NOT_SENT)


def test_the_consequences_are_told_before_anything_changes(source: Parts, tmp_path: Path):
    tenant_id, database = source.default_collection.tenant_id, source.database
    old, revoked = (issue_key(tenant_id, name, ["read"], database).view.id for name in ("old", "revoked"))
    store(source), (gone := store(source, ALAN, "alan.md"))
    folder = _backup(source, tmp_path, upload=False)
    delete_document(tenant_id, gone, source.removal)
    store(source, b"Newer.", "newer.md")
    revoke_key(revoked, database)
    with database.writing() as session:  # as if another database were restored over
        session.execute(delete(ApiKeyRow).where(ApiKeyRow.id == old))
        session.execute(update(DocumentRow).where(DocumentRow.name == "ada.md").values(sha256="0" * 64))
    issue_key(tenant_id, "newer", ["read"], database)
    before, told = rows(source), []

    def refuse(expected: Consequences) -> None:
        told.append(expected)
        raise RuntimeError

    for with_deleted in (False, True):
        with pytest.raises(RuntimeError):
            restore(folder, source, replace=True, with_deleted=with_deleted, announce=refuse)
    assert rows(source) == before
    without, with_ = told
    assert (without.documents, without.reappearing, without.older_files, without.deleted, without.lost) == (
        1,
        0,
        1,
        1,
        1,
    )
    assert (with_.documents, with_.reappearing, with_.deleted) == (2, 1, 0)
    assert (without.valid_keys, without.revoked_keys, without.lost_keys) == ([old], 1, 1)


@pytest.mark.parametrize("tenant_id", ["../planted", "/tmp/planted", ".", "", "a" * 31 + "/"])
def test_a_backup_whose_files_lead_out_of_the_folder_is_refused(
    parts: Parts, empty: Parts, tmp_path: Path, tenant_id: str
):
    folder = _backup(parts, tmp_path)
    (folder / "files.jsonl").write_text(json.dumps([tenant_id, sha256(ADA).hexdigest()]) + "\n")
    _change_manifest(folder, file_list=sha256((folder / "files.jsonl").read_bytes()).hexdigest())

    with pytest.raises(Rejected, match="names no file"):
        restore(folder, empty)
    assert not list(tmp_path.rglob("planted"))


@pytest.mark.parametrize(
    ("table", "column"), [("documents", "sha256"), ("documents", "tenant_id"), ("chunks", "kv_key")]
)
def test_a_backup_whose_rows_lead_out_of_the_folder_is_refused(
    parts: Parts, ingest: IngestParts, empty: Parts, tmp_path: Path, table: str, column: str
):
    ingest_document(store(parts), ingest)
    folder = _backup(parts, tmp_path, upload=False)
    manifest = json.loads((folder / "manifest.json").read_text())
    (dumped,) = (dumped for dumped in manifest["tables"] if dumped["name"] == table)
    lines = [json.loads(line) for line in (folder / f"tables/{table}.jsonl").read_text().splitlines()]
    lines[0][dumped["columns"].index(column)] = "../../../../etc/passwd"
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (folder / f"tables/{table}.jsonl").write_bytes(content)
    dumped["sha256"] = sha256(content).hexdigest()
    _change_manifest(folder, tables=manifest["tables"])

    with pytest.raises(Rejected, match=r"the id '\.\./"):
        restore(folder, empty)
    assert rows(empty)["documents"] == []


def test_a_backup_whose_tables_lead_out_of_the_folder_is_refused(parts: Parts, empty: Parts, tmp_path: Path):
    folder = _backup(parts, tmp_path)
    tables = json.loads((folder / "manifest.json").read_text())["tables"]
    _change_manifest(folder, tables=[*tables, tables[0] | {"name": "../tables/documents"}])

    with pytest.raises(Rejected, match="names a table"):
        restore(folder, empty)


def test_a_folder_with_something_in_it_is_not_written_to(parts: Parts, tmp_path: Path):
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "mine").write_text("keep")

    with pytest.raises(Rejected, match="not empty"):
        backup(tmp_path / "backup", parts.database, parts.files)
    assert [path.name for path in (tmp_path / "backup").iterdir()] == ["mine"]


def test_a_backup_names_files_that_are_lost_and_restores_the_rest(parts: Parts, empty: Parts, tmp_path: Path):
    lost, kept = store(parts), store(parts, ALAN, "alan.md")
    parts.files.path(parts.default_collection.tenant_id, _sha256(parts, lost)).unlink()
    manifest = backup(tmp_path / "backup", parts.database, parts.files)
    restored = restore(tmp_path / "backup", empty)

    assert [file.sha256 for file in manifest.lost_files] == [_sha256(parts, lost)]
    assert (restored.documents, restored.files, restored.lost_files) == (2, 1, 1)
    assert empty.files.path(parts.default_collection.tenant_id, _sha256(parts, kept)).read_bytes() == ALAN


def test_files_that_a_worker_sweeps_during_a_long_restore_are_put_back(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No row names them until the tables are exchanged."""
    document_id = store(parts)
    file = (parts.default_collection.tenant_id, _sha256(parts, document_id))
    parts.files.keep_beside(*file, b"made")
    folder = _backup(parts, tmp_path, upload=False)
    delete_document(parts.default_collection.tenant_id, document_id, parts.removal)
    exchange = restoring._exchange

    def hours_later(*given: Any, **options: Any) -> list[StoredFile]:
        for path in (path for path in parts.files.folder.rglob("*") if path.is_file()):
            os.utime(path, (time.time() - 7200,) * 2)
        assert clean(parts.database, parts.removal, parts.server_index).files == 1
        return exchange(*given, **options)

    monkeypatch.setattr(restoring, "_exchange", hours_later)
    restore(folder, parts, replace=True, with_deleted=True)

    assert (parts.files.path(*file).read_bytes(), parts.files.beside(*file)) == (ADA, b"made")


def test_backups_taken_while_documents_come_and_go_are_consistent(source: Parts, make: Maker, tmp_path: Path):
    """Every row of each backup has its file, and no file is without a row."""
    stop = threading.Event()

    def churn(thread: int) -> None:
        round_ = 0
        while not stop.is_set():
            body = b"document %d of thread %d" % (round_, thread)
            document_id = accept_document(
                source.default_collection, f"{round_}.txt", io.BytesIO(body), source.intake
            ).document_id
            if round_ % 2:
                delete_document(source.default_collection.tenant_id, document_id, source.removal)
            round_ += 1

    threads = [threading.Thread(target=churn, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    try:
        manifests = [backup(tmp_path / f"backup{i}", source.database, source.files) for i in range(2)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    for i, manifest in enumerate(manifests):
        assert manifest.lost_files == []
        target = make(f"target{i}", f"sqlite:///{tmp_path / f'target{i}.sqlite3'}")
        assert restore(tmp_path / f"backup{i}", target).documents == manifest.num_files
        with target.database.reading() as session:
            for document in session.scalars(select(DocumentRow)):
                assert target.files.path(document.tenant_id, document.sha256).read_bytes()


def test_the_commands_say_what_to_do_next(parts: Parts, empty: Parts, tmp_path: Path):
    store(parts)
    key_id = issue_key_by_name("guests", "laptop", ("read",), parts.database).view.id
    folder = str(tmp_path / "backup")
    written = CliRunner().invoke(backup_command, [folder], env=_environment(parts))
    put_back = CliRunner().invoke(restore_command, [folder], env=_environment(empty))

    assert written.exit_code == put_back.exit_code == 0, written.output + put_back.output
    assert "1 document and 1 file" in written.output and "secrets of tenants" in written.output
    assert "Restored: 1 document and 1 file" in put_back.output and "Restart the API" in put_back.output
    assert "does not know what was deleted or revoked after the backup" in put_back.output
    assert f"API keys that become valid ({key_id}): 1" in put_back.output.partition("Restored")[0]


def _backup(parts: Parts, tmp_path: Path, *, upload: bool = True) -> Path:
    if upload:
        store(parts)
    backup(tmp_path / "backup", parts.database, parts.files)
    return tmp_path / "backup"


def _environment(parts: Parts) -> dict[str, str | None]:
    settings = parts.settings
    return {
        "RAGKV_DATA_DIR": str(settings.data_dir),
        "RAGKV_DATABASE_URL": settings.database_url,
        "RAGKV_MODEL": settings.model,
        "RAGKV_CHUNK_TOKENS": str(settings.chunk_tokens),
    }


def _document_ids(parts: Parts) -> list[str]:
    with parts.database.reading() as session:
        return list(session.scalars(select(DocumentRow.id)))


def _remove_key_that_ended_long_ago(key_id: str, database: Database) -> None:
    with database.writing() as session:
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(revoked_at=utc_now() - 2 * KEYS_KEPT))
    issue_key_by_name("default", "newest", ("read",), database)
    assert prune(0, database).keys == 1


def _change_manifest(folder: Path, **changes: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


def _naive(row: tuple[object, ...]) -> tuple[object, ...]:
    """Moments without their zone: SQLite keeps none."""
    return tuple(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in row)


def _sha256(parts: Parts, document_id: str) -> str:
    with parts.database.reading() as session:
        return session.get_one(DocumentRow, document_id).sha256
