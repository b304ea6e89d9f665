"""A database of version 0.1.0, with data in it, brought up to date: nothing is lost, and the service answers."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import update

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.service.backup.backup import backup
from ragkv.service.backup.dump import reflected, replacing, snapshot
from ragkv.service.backup.restore import restore
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.migrate import check_drift, downgrade, migrate
from ragkv.service.documents.listing import DocumentFilter, matching_ids
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support import version_0_1_0 as old
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import client_of, upload
from tests.support.stored_rows import rows

AUTHORIZED = {"authorization": f"Bearer {old.KEY}"}


@pytest.fixture
def parts(settings: Settings, engine: EchoEngine, loaded: IngestParts, database_url: str) -> Iterator[Parts]:
    """Parts over a database of 0.1.0 that is not migrated yet."""
    parts = Parts(msgspec.structs.replace(settings, database_url=database_url), engine)
    lend_models(parts, loaded)
    migrate(database_url, old.REVISION)
    with replacing(parts.database) as connection:
        old.fill(connection, parts)
    yield parts
    parts.close()


def test_every_value_is_still_there_after_the_upgrade_and_after_going_back_to_0_1_0_and_forth(parts: Parts):
    with snapshot(parts.database) as connection:
        before = rows(connection)
    for move in (migrate, lambda url: downgrade(url, old.REVISION), migrate):
        move(parts.settings.database)
        with snapshot(parts.database) as connection:
            after = rows(connection)
        for table, kept in before.items():
            assert [{name: row[name] for name in kept[0]} for row in after[table]] == kept
    check_drift(parts.settings.database)


def test_rows_outlive_the_way_back_to_the_first_schema_with_keys_and_forth(parts: Parts):
    """Also the chunks of documents, and the documents of collections."""
    url = parts.settings.database
    with snapshot(parts.database) as connection:
        before = rows(connection)
    downgrade(url, "0002")
    with snapshot(parts.database) as connection:
        oldest = rows(connection)
    migrate(url)
    with snapshot(parts.database) as connection:
        newest = rows(connection)
    assert len(oldest["documents"]) == 4 and len(oldest["chunks"]) == 2
    for table, kept in oldest.items():
        for others in (before, newest):
            assert [{name: row[name] for name in kept[0]} for row in others[table]] == kept


def test_documents_that_no_file_is_attached_as_are_taken_as_uploaded(parts: Parts):
    migrate(parts.settings.database)
    with snapshot(parts.database) as connection:
        uploaded = {row["id"] for row in rows(connection)["documents"] if row["was_uploaded"]}
    assert uploaded == {old.WAITING, old.FAILED, old.EVICTED}


def test_filters_find_long_values_of_metadata_that_were_stored_before(parts: Parts):
    with replacing(parts.database) as connection:
        documents = next(table for table in reflected(connection) if table.name == "documents")
        for document_id, metadata in (
            (old.READY, {"url": "u" * 512}),
            (old.FAILED, {"url": ["v", "ü\n" * 150], "year": 1}),
        ):
            connection.execute(update(documents).where(documents.c.id == document_id).values(metadata=metadata))
    migrate(parts.settings.database)
    for url, found in (("u" * 512, old.READY), ("ü\n" * 150, old.FAILED)):
        assert matching_ids(DocumentFilter(old.TENANT, metadata={"url": url}), parts.database) == {found}
    downgrade(parts.settings.database, old.REVISION)
    assert matching_ids(DocumentFilter(old.TENANT, metadata={"url": "u" * 512}), parts.database) == frozenset()


def test_the_service_answers_from_what_was_read_before_and_reads_what_was_waiting(
    parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis
):
    """What an upgrade makes anew, because it is made otherwise now, is read again from the files."""
    parts.prepare()
    with client_of(parts) as client:
        client.headers.update(AUTHORIZED)
        listed = {d["id"]: d for d in client.get("/v1/documents").json()["items"]}
        assert listed.keys() == old.BODIES.keys()
        assert listed[old.READY]["metadata"] == {"year": 1843, "tags": ["a", "ö"]}
        assert client.get(f"/v1/documents/{old.READY}/file").content == old.BODIES[old.READY]

        parts.refresh_outdated()
        outcomes = {document_id: ingest_document(document_id, ingest) for document_id in stuck_ids(parts.database)}
        assert outcomes[old.WAITING] is IngestOutcome.READY and set(outcomes.values()) == {IngestOutcome.READY}
        found = client.post("/v1/search", json={"question": "analytical engine", "filter": {"year": 1843}}).json()
        assert found["passages"][0]["document_id"] == old.READY
        assert client.post("/v1/ask", json={"question": "Who wrote the first program?"}).json()["citations"]
        assert upload(client, b"# New\n\nSomething new.\n", "new.md").status_code == 202


def test_a_backup_of_a_database_of_0_1_0_is_upgraded_while_it_is_restored(
    parts: Parts, settings: Settings, loaded: IngestParts, postgres_url: str, tmp_path: Path
):
    """Into a database of the other kind, on a machine that has no data folder yet."""
    manifest = backup(tmp_path / "backup", parts.database, parts.files)
    other = None if parts.database.engine.dialect.name == "postgresql" else postgres_url
    target = Parts(msgspec.structs.replace(settings, data_dir=tmp_path / "target", database_url=other))
    lend_models(target, loaded)
    restored = restore(tmp_path / "backup", target)

    assert (manifest.revision, restored.documents, restored.files) == (old.REVISION, 4, 4)
    with snapshot(target.database) as connection:
        questions = {row["text"] for row in rows(connection)["questions"]}
    assert questions == {"Who wrote it?", "Wer war's — 1918?"}
    assert list(target.settings.data_dir.glob("restore-*")) == []
    assert target.settings.data_dir.stat().st_mode & 0o077 == 0
    target.close()
