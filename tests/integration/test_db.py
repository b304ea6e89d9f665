"""The database: migrations, leases, sources. On SQLite and on a real PostgreSQL."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from sqlalchemy import Engine, event, inspect, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from ragkv.chunk import Chunk
from ragkv.errors import Conflict, NotFound, Rejected, Unavailable
from ragkv.ids import new_id, utc_now
from ragkv.retrieve.index import Vectors
from ragkv.retrieve.links import TitledChunk
from ragkv.service.backup.dump import snapshot
from ragkv.service.base import postgres
from ragkv.service.base.database import Database, advisory_lock, open_engine
from ragkv.service.base.migrate import check_drift, downgrade, migrate
from ragkv.service.base.page import to_cursor
from ragkv.service.base.status import JobStatus, Status
from ragkv.service.base.tables import CollectionRow, DocumentRow, JobRow, KVEntryRow
from ragkv.service.base.tenants import ensure_collection, find_collection_ref, tenant_secret
from ragkv.service.collections.collections import list_collections
from ragkv.service.documents.lease import LATELY, KeptKV, Lease
from ragkv.service.documents.statements import stuck_documents
from ragkv.settings import Settings
from tests.integration.filled import source_of

INDEX_FINGERPRINT = "fingerprint"
AT_UPLOAD = Settings().kv_rule


@pytest.fixture
def database(database: Database) -> Database:
    """With the default tenant."""
    ensure_collection(database)
    return database


def add_document(database: Database, name: str = "a.txt") -> str:
    ref = find_collection_ref(database)
    row = DocumentRow(
        id=new_id(),
        tenant_id=ref.tenant_id,
        collection_id=ref.collection_id,
        sha256=new_id(),
        name=name,
        num_bytes=1,
    )
    with database.writing() as session:
        session.add(row)
        session.flush()
        session.add(JobRow(tenant_id=ref.tenant_id, document_id=row.id, kind="ingest"))
    return row.id


def chunk(document_id: str, ordinal: int, title: str = "Ada") -> Chunk:
    return Chunk(f"{document_id}:{ordinal}", document_id, ordinal, title, "text ünï", 3, 9, None, (1, 2, 49151))


def vectors(seed: int) -> Vectors:
    rng = np.random.default_rng(seed)
    return Vectors(
        rng.random(384, dtype=np.float32), np.array([7, 4_000_000_000], np.uint32), np.array([0.5, 2], np.float32)
    )


def take(database: Database, document_id: str, owner: str = "me") -> Lease:
    lease = Lease.take(database, document_id, owner)
    assert lease is not None
    return lease


def store(database: Database, document_id: str, num_chunks: int = 2) -> Lease:
    lease = take(database, document_id)
    chunks = [chunk(document_id, i) for i in range(num_chunks)]
    lease.store_chunks(
        chunks, [vectors(i) for i in range(num_chunks)], Status.SEARCHABLE, index_fingerprint=INDEX_FINGERPRINT
    )
    return lease


def lapse(database: Database, document_id: str) -> None:
    with database.writing() as session:
        past = utc_now() - timedelta(seconds=1)
        session.execute(update(DocumentRow).where(DocumentRow.id == document_id).values(lease_until=past))


def document(database: Database, document_id: str) -> DocumentRow:
    with database.reading() as session:
        return session.get_one(DocumentRow, document_id)


class TestMigrations:
    def test_an_empty_database_comes_up_to_date_and_stays_so(self, database_url: str):
        migrate(database_url)
        migrate(database_url)

        assert "documents" in inspect(open_engine(database_url)).get_table_names()

    def test_tables_and_migrations_say_the_same(self, database_url: str):
        migrate(database_url)

        check_drift(database_url)

    def test_one_step_back_and_forth_again(self, database_url: str):
        migrate(database_url)
        downgrade(database_url, "-1")
        migrate(database_url)

        check_drift(database_url)

    def test_an_unreleased_or_newer_schema_is_refused_with_the_remedy(self, database_url: str):
        migrate(database_url)
        for revision, remedy in (
            ("0037", "upgrade it with commit 0a15b553"),
            ("0999", "use the version of ragkv that"),
        ):
            with open_engine(database_url).begin() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
            with pytest.raises(Rejected, match=remedy):
                migrate(database_url)

    def test_a_file_that_is_damaged_is_named_with_the_remedy(self, tmp_path: Path):
        whole, path = tmp_path / "whole.sqlite3", tmp_path / "damaged.sqlite3"
        migrate(f"sqlite:///{whole}")
        for content in (b"no database", whole.read_bytes()[:3000]):
            path.write_bytes(content)
            with pytest.raises(Rejected, match=rf"{path} is damaged .*ragkv restore"):
                migrate(f"sqlite:///{path}")

    def test_no_upgrade_drops_a_table(self, sqlite_url: str):
        """SQLite would delete the rows that refer to one."""
        statements: list[str] = []

        def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
            statements.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        migrate(sqlite_url)
        event.remove(Engine, "before_cursor_execute", note)

        assert any("CREATE TABLE" in statement for statement in statements)
        assert not [statement for statement in statements if "DROP TABLE" in statement]

    def test_processes_that_migrate_at_once_wait_for_each_other(self, database_url: str):
        """Each also makes the default scope: there is one in the end."""
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_migrate_and_seed, args=(database_url,)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(300)

        assert [process.exitcode for process in processes] == [0, 0]
        with Database(database_url).reading() as session:
            assert session.scalar(text("SELECT count(*) FROM collections")) == 1


def _migrate_and_seed(url: str) -> None:
    migrate(url)
    ensure_collection(Database(url))


class TestAccess:
    def test_a_url_of_another_kind_is_refused(self):
        with pytest.raises(Rejected, match="mysql is not supported"):
            Database("mysql://localhost/x")
        with pytest.raises(Rejected, match="not a database URL"):
            Database("nonsense")
        with pytest.raises(Rejected, match="names no user"):
            Database("postgresql://127.0.0.1/ragkv")

    def test_a_server_that_is_away_is_unavailable(self):
        with pytest.raises(Unavailable):
            Database("postgresql://x:y@127.0.0.1:9/ragkv").ping()

    def test_an_exception_rolls_the_transaction_back(self, database: Database):
        document_id = add_document(database, "before.txt")
        with pytest.raises(ZeroDivisionError), database.writing() as session:  # noqa: PT012 - both belong to it
            session.execute(update(DocumentRow).values(name="after.txt"))
            raise ZeroDivisionError

        assert document(database, document_id).name == "before.txt"

    def test_tenants_have_secrets_and_strangers_none(self, database: Database):
        ref = find_collection_ref(database)

        assert len(ref.secret) == 32
        assert tenant_secret(ref.tenant_id, database) == ref.secret
        assert ref.secret.hex() not in repr(ref)
        with pytest.raises(NotFound):
            tenant_secret("x", database)
        with pytest.raises(NotFound):
            find_collection_ref(database, "default", "other")


class TestLease:
    def test_two_workers_never_hold_one_document(self, database: Database):
        document_id = add_document(database)

        assert Lease.take(database, document_id, "one")
        assert Lease.take(database, document_id, "two") is None

    def test_a_lease_that_lapsed_can_be_taken_and_its_owner_can_write_no_more(self, database: Database):
        document_id = add_document(database)
        old = take(database, document_id, "old")
        lapse(database, document_id)
        new = take(database, document_id, "new")

        with pytest.raises(Conflict):
            old.report("embed", 1, 2)
        new.report("embed", 1, 2)
        assert document(database, document_id).attempts == 2

    def test_kv_that_a_chunk_never_had_is_progress_and_attempts_begin_anew(self, database: Database):
        """What was evicted and is made again is none: a document that kills its workers must not go on for ever."""
        document_id = add_document(database)
        store(database, document_id)
        attempts = []
        for key in ("k0", "k0", "of another model"):
            lapse(database, document_id)
            take(database, document_id).keep([KeptKV(f"{document_id}:0", key, 3, 10)])
            attempts.append(document(database, document_id).attempts)

        assert attempts == [1, 2, 1]

    def test_other_documents_that_lost_their_workers_lately_are_counted(self, database: Database):
        one, interrupted, failing, *others = (add_document(database, f"{n}.txt") for n in range(6))
        going_on, finished, failed = others
        for document_id in (one, going_on, going_on, finished, failed):
            take(database, document_id)
            lapse(database, document_id)
        for document_id in (interrupted, failing):
            take(database, document_id).give_back("it cannot be read" if document_id == failing else None)
            take(database, document_id)
        take(database, going_on).enter(Status.PARSING)
        take(database, finished).finish([], "kv fingerprint")
        take(database, failed).fail("the worker died 3 times")
        lease = take(database, one)
        assert lease.others_lost_workers() == len([going_on, finished])

        with database.writing() as session:
            long_ago = utc_now() - 2 * LATELY
            session.execute(update(JobRow).where(JobRow.document_id == finished).values(updated_at=long_ago))
        assert lease.others_lost_workers() == len([going_on])

    def test_what_nobody_holds_is_stuck_until_it_is_done(self, database: Database):
        document_id = add_document(database)

        def stuck() -> list[str]:
            with database.reading() as session:
                return list(session.scalars(stuck_documents(utc_now())))

        assert stuck() == [document_id]
        take(database, document_id)
        assert stuck() == []
        lapse(database, document_id)
        assert stuck() == [document_id]
        take(database, document_id).fail("it is empty")
        assert stuck() == []

    def test_giving_back_without_a_reason_costs_no_attempt(self, database: Database):
        document_id = add_document(database)
        take(database, document_id).give_back(None)
        assert document(database, document_id).attempts == 0

        take(database, document_id).give_back("the disk is full")
        row = document(database, document_id)
        assert (row.attempts, row.error, row.lease_owner) == (1, "the disk is full", None)

    def test_a_deleted_document_ends_its_lease(self, database: Database):
        document_id = add_document(database)
        lease = take(database, document_id)
        with database.writing() as session:
            session.delete(session.get_one(DocumentRow, document_id))

        with pytest.raises(Conflict):
            lease.renew()
        with pytest.raises(Conflict):
            lease.document()

    def test_finishing_names_the_kv_and_closes_the_job(self, database: Database):
        """Two chunks of the same text share one entry."""
        document_id = add_document(database)
        lease = store(database, document_id)
        lease.finish([KeptKV(f"{document_id}:{i}", "k" * 64, 3, 100) for i in range(2)], "kv")

        row = document(database, document_id)
        assert (row.status, row.num_chunks, row.num_tokens, row.kv_fingerprint) == (Status.READY, 2, 6, "kv")
        with database.reading() as session:
            assert [e.num_bytes for e in session.scalars(select(KVEntryRow))] == [100]
            assert [j.status for j in session.scalars(select(JobRow))] == [JobStatus.DONE]
        assert Lease.take(database, document_id, "again") is None

    def test_finishing_waits_for_a_change_of_the_rule_for_kv_and_leaves_the_rest_to_do(self, database: Database):
        document_id = add_document(database)
        lease = store(database, document_id)
        finished: list[bool] = []
        finishing = Thread(target=lambda: finished.append(lease.finish([], "kv", AT_UPLOAD, AT_UPLOAD)))
        with database.writing() as session:
            session.execute(update(CollectionRow).values(kv_format="int8"))
            finishing.start()
            finishing.join(0.3)
            assert finished == []
        finishing.join()

        assert finished == [False]
        assert document(database, document_id).status is Status.SEARCHABLE
        assert lease.finish([], "kv", lease.kv_rule(AT_UPLOAD), AT_UPLOAD)
        assert document(database, document_id).status is Status.READY

    def test_writing_chunks_again_replaces_them_and_raises_the_version(self, database: Database):
        document_id = add_document(database)
        lease = store(database, document_id, num_chunks=3)
        assert len(lease.chunks_to_keep(AT_UPLOAD)) == 3
        lease.store_chunks(
            [chunk(document_id, 0)], [vectors(0)], Status.SEARCHABLE, index_fingerprint=INDEX_FINGERPRINT
        )

        assert [c.ordinal for c in lease.chunks_to_keep(AT_UPLOAD)] == [0]
        assert document(database, document_id).version == 2


class TestSource:
    def test_chunks_and_points_come_back_as_they_were(self, database: Database):
        document_id = add_document(database)
        store(database, document_id)
        ref, source = find_collection_ref(database), source_of(database, INDEX_FINGERPRINT)

        assert source.indexed_documents(ref.tenant_id, ref.collection_id) == {document_id: 1}
        assert source.chunks(ref.tenant_id, [f"{document_id}:1", "gone", f"{document_id}:0"]) == [
            chunk(document_id, 1),
            chunk(document_id, 0),
        ]
        first = source.points([document_id])[0]
        assert (first.chunk_id, first.document_id, first.title) == (f"{document_id}:0", document_id, "Ada")
        for got, given in zip(
            (first.vectors.dense, first.vectors.indices, first.vectors.values),
            (vectors(0).dense, vectors(0).indices, vectors(0).values),
            strict=True,
        ):
            np.testing.assert_array_equal(got, given)
        titled = [TitledChunk(document_id, i, f"{document_id}:{i}", "Ada") for i in range(2)]
        assert sorted(source.titles(ref.tenant_id, ref.collection_id)) == titled
        assert sorted(source.titles(ref.tenant_id, ref.collection_id, ["gone", document_id])) == titled
        assert source.titles(ref.tenant_id, ref.collection_id, ["gone"]) == []

    def test_other_tenants_see_nothing(self, database: Database):
        document_id = add_document(database)
        store(database, document_id)
        ref, source = find_collection_ref(database), source_of(database, INDEX_FINGERPRINT)

        assert source.chunks("stranger", [f"{document_id}:0"]) == []
        assert source.indexed_documents("stranger", ref.collection_id) == {}
        assert source.titles("stranger", ref.collection_id) == []
        assert source.titles("stranger", ref.collection_id, [document_id]) == []

    def test_what_other_models_read_is_there_in_the_present_ones_token_ids_and_without_their_vectors(
        self, database: Database
    ):
        document_id = add_document(database)
        store(database, document_id)
        ref, source = find_collection_ref(database), source_of(database, "another")

        assert source.indexed_documents(ref.tenant_id, ref.collection_id) == {document_id: 1}
        assert source.of_other_encoders(ref.tenant_id, ref.collection_id) == {document_id}
        (found,) = source.chunks(ref.tenant_id, [f"{document_id}:0"])
        assert found == replace(chunk(document_id, 0), token_ids=(7,))
        assert [point.vectors.dense.size for point in source.points([document_id])] == [0, 0]

    def test_more_ids_than_a_statement_takes(self, database: Database):
        document_id = add_document(database)
        store(database, document_id, num_chunks=1200)
        source = source_of(database, INDEX_FINGERPRINT)

        ids = [f"{document_id}:{i}" for i in range(1200)]
        assert [c.id for c in source.chunks(find_collection_ref(database).tenant_id, ids)] == ids


class TestLimits:
    """What the server ends, and what the client is told."""

    @pytest.fixture
    def limited(self, postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
        monkeypatch.setitem(postgres.LIMITS, "statement_timeout", "300ms")
        monkeypatch.setitem(postgres.LIMITS, "lock_timeout", "100ms")
        database = Database(postgres_server)
        yield database
        database.close()

    def test_a_statement_that_takes_too_long_is_ended_by_the_server_and_its_connection_stays(self, limited: Database):
        with limited.reading() as session:
            before = session.scalar(text("SELECT pg_backend_pid()"))
        with pytest.raises(Unavailable, match="took too long"), limited.reading() as session:
            session.execute(text("SELECT pg_sleep(5)"))

        with limited.reading() as session:
            assert session.scalar(text("SELECT pg_backend_pid()")) == before

    def test_waiting_for_anothers_lock_ends(self, limited: Database):
        with limited.writing() as holder:
            advisory_lock(holder, "uploads")
            with pytest.raises(Unavailable, match="busy"), limited.writing() as session:
                advisory_lock(session, "uploads")

    def test_a_snapshot_lasts_however_long_nothing_is_asked_of_it(
        self, postgres_server: str, monkeypatch: pytest.MonkeyPatch
    ):
        """As while a backup copies the uploaded files."""
        monkeypatch.setitem(postgres.LIMITS, "idle_in_transaction_session_timeout", "200ms")
        with closing(Database(postgres_server)) as database, snapshot(database) as connection:
            time.sleep(1)
            assert connection.scalar(text("SELECT 1")) == 1

    def test_a_statement_may_take_longer_than_connecting_may(
        self, postgres_server: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(postgres, "CONNECT_TIMEOUT_S", 1.5)
        with Database(postgres_server).reading() as session:
            session.execute(text("SELECT pg_sleep(2)"))


class TestMessages:
    """Who asks learns that the database is away; hosts, users and values of rows are nobody's."""

    def test_a_server_that_is_away_is_not_named(self):
        with pytest.raises(Unavailable) as raised:
            Database("postgresql://svc:hunter2@127.0.0.1:9/ragkv").ping()

        assert not {"svc", "hunter2", "127.0.0.1"} & set(str(raised.value).replace(":", " ").split())

    def test_errors_show_no_values(self, database: Database, caplog: pytest.LogCaptureFixture):
        ref = find_collection_ref(database)
        for statement in (
            "INSERT INTO collections (id, tenant_id, name, created_at) VALUES (:v, :v, :v, :v)",
            "SELEC :v",
        ):
            with pytest.raises(DBAPIError) as raised, database.writing() as session:
                session.execute(text(statement), {"v": f"secret {ref.tenant_id}"})
            assert "secret" not in str(raised.value)
        assert "secret" not in caplog.text

    def test_a_duplicate_does_not_show_the_row(self, database: Database):
        insert = text("INSERT INTO collections (id, tenant_id, name, created_at) VALUES (:id, :tenant, :name, :now)")
        row = {"tenant": find_collection_ref(database).tenant_id, "name": "merger plan", "now": utc_now()}
        with pytest.raises(IntegrityError) as raised, database.writing() as session:
            session.execute(insert, [row | {"id": "1"}, row | {"id": "2"}])

        assert "merger" not in str(raised.value)

    def test_a_statement_that_is_wrong_is_not_said_to_be_an_outage(self, database: Database):
        with pytest.raises(DBAPIError), database.reading() as session:
            session.execute(text("SELECT * FROM nowhere"))


class TestSqliteFile:
    def test_its_files_are_for_the_user_alone_in_a_folder_that_is_not(self, tmp_path: Path):
        folder = tmp_path / "data"
        folder.mkdir(mode=0o755)
        (folder / "ragkv.sqlite3").touch(mode=0o644)
        umask = os.umask(0o022)
        database = Database(f"sqlite:///{folder / 'ragkv.sqlite3'}")
        with database.writing() as session:
            session.execute(text("CREATE TABLE things (id INTEGER)"))
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()}
        database.close()
        os.umask(umask)

        assert modes == dict.fromkeys(("ragkv.sqlite3", "ragkv.sqlite3-wal", "ragkv.sqlite3-shm"), "0o600")


def test_what_is_read_together_is_of_one_moment(database: Database):
    add_document(database)
    with database.reading() as session:
        before = session.scalars(select(DocumentRow.id)).all()
        add_document(database)
        meanwhile = session.scalars(select(DocumentRow.id)).all()
    with database.reading() as session:
        after = session.scalars(select(DocumentRow.id)).all()

    assert (len(before), len(meanwhile), len(after)) == (1, 1, 2)


def test_a_cursor_with_a_character_that_no_name_has_finds_nothing_odd(database: Database):
    page = list_collections(find_collection_ref(database).tenant_id, 10, to_cursor("\x00"), database)

    assert [item.name for item in page.items] in ([], ["default"])
