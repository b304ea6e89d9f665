"""What is away, full or failing costs no document an attempt; what is a document's own fault ends after three."""

import io
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from celery import Celery
from sqlalchemy import make_url, text, update

from ingest.parts import IngestParts
from ingest.pipeline import MAX_ATTEMPTS, IngestOutcome, ingest_document
from ragkv.errors import NotFound, Unavailable
from ragkv.ids import utc_now
from ragkv.kv.file import write_kv
from ragkv.service.base.database import Database, open_engine
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.long_work import LONGEST_DELAY_S, is_outage, retry_delay_s
from ragkv.service.base.queue import INGEST
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.checks.check import WHILE_RUNNING
from ragkv.service.checks.fsck import repair
from ragkv.service.documents.documents import document_view, store_document
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support.echo_engine import EchoEngine, random_kv
from tests.support.over_http import ADA, Client, upload
from tests.support.wrong_clock import clock_ahead
from workers.alive import Pulse
from workers.tasks import Ingestion, Pause, register_tasks

OFTEN = MAX_ATTEMPTS + 2
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
UNREADABLE = Path("/proc/self/mem")
"""Reading its first byte is an input/output error, as on a failing disk."""


@pytest.fixture
def document_id(parts: Parts) -> str:
    return store_document(parts.default_collection, "ada.md", io.BytesIO(ADA), parts.intake).document_id


def row_of(database: Database, document_id: str) -> DocumentRow:
    with database.reading() as session:
        return session.get_one(DocumentRow, document_id)


def file_of(parts: Parts, document_id: str) -> Path:
    return parts.files.path(parts.default_collection.tenant_id, row_of(parts.database, document_id).sha256)


class TestOutages:
    def test_an_index_that_is_away_costs_no_attempt_however_often(
        self, parts: Parts, ingest: IngestParts, document_id: str
    ):
        parts.settings = msgspec.structs.replace(parts.settings, qdrant_url="http://127.0.0.1:9")
        for _ in range(OFTEN):
            with pytest.raises(Unavailable, match="Qdrant"):
                ingest_document(document_id, ingest)
        waiting = document_view(parts.default_collection.tenant_id, document_id, parts.database)
        assert (waiting.status, row_of(parts.database, document_id).attempts) == (Status.INDEXING, 0)
        assert "Qdrant" in (waiting.error or ""), "the reason is shown while it waits"

        parts.server_index = None  # it is back
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert document_view(parts.default_collection.tenant_id, document_id, parts.database).error is None

    def test_a_failing_disk_costs_no_attempt_however_often(self, parts: Parts, ingest: IngestParts, document_id: str):
        file = file_of(parts, document_id)
        kept = file.rename(file.with_name("kept"))
        file.symlink_to(UNREADABLE)
        for _ in range(OFTEN):
            with pytest.raises(OSError, match="Input/output error"):
                ingest_document(document_id, ingest)

        kept.rename(file)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY

    def test_a_database_that_goes_away_costs_no_attempt(
        self, on_postgres: Parts, socket: Path, postgres_url: str, loaded: IngestParts
    ):
        """The attempt cannot be given back at that moment: it is with the next call."""
        server = socket.readlink()
        document_id = store_document(
            on_postgres.default_collection, "ada.md", io.BytesIO(ADA), on_postgres.intake
        ).document_id
        ingest = IngestParts(on_postgres, engine=EchoEngine(on_postgres.settings))

        def stop(stage: str, done: int, total: int) -> None:
            socket.unlink(missing_ok=True)
            _end_connections(postgres_url)

        with pytest.raises(Unavailable):
            ingest_document(document_id, ingest, stop)
        with pytest.raises(Unavailable):
            ingest_document(document_id, ingest)
        socket.symlink_to(server)
        assert ingest_document("0" * 32, ingest) is IngestOutcome.SKIPPED
        row = row_of(on_postgres.database, document_id)
        assert (row.attempts, row.lease_owner, row.outages) == (0, None, 1)

    def test_a_lease_that_is_owed_while_another_is_released_is_released_too(
        self, parts: Parts, ingest: IngestParts, document_id: str, monkeypatch: pytest.MonkeyPatch
    ):
        """A thread of KV adds to the list that the worker's main thread works off."""
        other_id = store_document(parts.default_collection, "b.md", io.BytesIO(b"# B"), parts.intake).document_id
        lease, late = (Lease.take(parts.database, taken_id, "worker") for taken_id in (document_id, other_id))
        postpone, failing = Lease.postpone, [late]

        def postpone_while_another_fails(self: Lease, reason: str) -> None:
            while failing:
                ingest.owed.append((failing.pop(), reason))
            postpone(self, reason)

        monkeypatch.setattr(Lease, "postpone", postpone_while_another_fails)
        ingest.owed.append((lease, "the database was away"))
        ingest_document("0" * 32, ingest)

        released = [row_of(parts.database, taken_id) for taken_id in (document_id, other_id)]
        assert [(row.lease_owner, row.attempts, row.outages) for row in released] == [(None, 0, 1)] * 2

    def test_the_file_formats_own_errors_are_the_systems(self, tmp_path: Path, loaded: IngestParts):
        """safetensors hides the number of an error in its words."""
        kv = random_kv([1, 2], loaded.parts.layout)
        with pytest.raises(OSError) as raised, _without_room(tmp_path) as disk:  # noqa: PT011 - which one is the point
            write_kv(disk / "kv" / "a.safetensors", kv)

        assert is_outage(raised.value)
        assert not list((tmp_path / "kv").glob("*"))

    def test_what_is_the_documents_own_fault_still_fails_after_three_attempts(
        self, parts: Parts, ingest: IngestParts, document_id: str
    ):
        """Outages in between do not count."""
        file = file_of(parts, document_id)
        for attempt in range(1, MAX_ATTEMPTS):
            file.unlink()
            with pytest.raises(NotFound):
                ingest_document(document_id, ingest)
            file.symlink_to(UNREADABLE)
            with pytest.raises(OSError, match="Input/output error"):
                ingest_document(document_id, ingest)
            assert row_of(parts.database, document_id).attempts == attempt
        file.unlink()

        assert ingest_document(document_id, ingest) is IngestOutcome.FAILED


class TestBackOff:
    def test_a_document_waits_longer_after_each_outage_and_is_due_again(
        self, parts: Parts, ingest: IngestParts, document_id: str
    ):
        file_of(parts, document_id).unlink()
        file_of(parts, document_id).symlink_to(UNREADABLE)
        waits = []
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                ingest_document(document_id, ingest)
            row = row_of(parts.database, document_id)
            waits.append(round((row.retry_at - row.updated_at).total_seconds()))

        assert waits == [5, 10, 20]
        assert stuck_ids(parts.database) == [], "it is not due"
        _become_due(parts)
        assert stuck_ids(parts.database) == [document_id]

    def test_waiting_has_a_limit(self):
        assert [retry_delay_s(n) for n in (1, 2, 3, 10_000)] == [5, 10, 20, LONGEST_DELAY_S]

    def test_a_worker_tries_for_ever_and_waits_in_between(
        self, parts: Parts, ingest: IngestParts, document_id: str, redis_server: EmbeddedRedis
    ):
        """Once the index is back, one more wake-up makes the document ready."""
        parts.settings = msgspec.structs.replace(parts.settings, qdrant_url="http://127.0.0.1:9")
        app = Celery("test", broker="memory://", set_as_current=False)
        register_tasks(app, Ingestion(ingest, Pulse(parts.heartbeats), first_pause_s=0.01))
        for _ in range(OFTEN):
            _become_due(parts)
            app.tasks[INGEST].run(document_id)
        assert row_of(parts.database, document_id).attempts == 0

        parts.server_index = None
        _become_due(parts)
        app.tasks[INGEST].run(document_id)
        assert row_of(parts.database, document_id).status is Status.READY

    def test_one_outage_that_several_threads_see_is_the_first_of_each(self, caplog: pytest.LogCaptureFixture):
        pause, together = Pause(threading.Event(), first_s=0.001), threading.Barrier(4)

        def see() -> None:
            together.wait()
            pause.after(Unavailable("away"))

        with ThreadPoolExecutor(4) as threads:
            for _ in range(4):
                threads.submit(see)

        assert {record.args[0] for record in caplog.records} == {0.001}

    def test_a_worker_that_is_to_stop_waits_no_longer(self):
        stopping = threading.Event()
        stopping.set()
        pause = Pause(stopping, first_s=3600)

        pause.after(Unavailable("away"))


class TestClocks:
    """The database's clock counts."""

    def test_a_worker_whose_clock_is_ahead_takes_no_lease_that_is_held(self, on_postgres: Parts):
        document_id = store_document(
            on_postgres.default_collection, "ada.md", io.BytesIO(ADA), on_postgres.intake
        ).document_id
        assert Lease.take(on_postgres.database, document_id, "one")
        with clock_ahead(HOUR):
            assert Lease.take(on_postgres.database, document_id, "two, an hour ahead") is None

    @pytest.mark.parametrize("ahead", [HOUR, -HOUR])
    def test_a_sweeper_whose_clock_is_wrong_queues_what_is_due_and_no_more(self, on_postgres: Parts, ahead: timedelta):
        names = ("due", "later")
        ids = [store_document(on_postgres.default_collection, n, io.BytesIO(n.encode()), on_postgres.intake).document_id for n in names]  # fmt: skip
        for document_id, retry_at in zip(ids, (utc_now() - MINUTE, utc_now() + MINUTE), strict=True):
            _wait_until(retry_at, document_id, on_postgres)
        with clock_ahead(ahead):
            assert stuck_ids(on_postgres.database) == ids[:1]

    def test_a_document_postponed_by_a_clock_that_ran_ahead_is_due_once_it_is_right(
        self, parts: Parts, document_id: str
    ):
        _wait_until(utc_now() + HOUR, document_id, parts)

        assert Lease.take_next(parts.database, "worker") is not None

    @pytest.mark.parametrize("ahead", [HOUR, -HOUR])
    def test_a_repair_by_a_machine_whose_clock_is_wrong_takes_no_lease_from_a_worker(
        self, on_postgres: Parts, ahead: timedelta
    ):
        document_id = store_document(
            on_postgres.default_collection, "ada.md", io.BytesIO(ADA), on_postgres.intake
        ).document_id
        lease = Lease.take(on_postgres.database, document_id, "worker")
        assert lease is not None
        with clock_ahead(ahead):
            mended = [finding.check for finding in repair(WHILE_RUNNING, on_postgres, quick=True) if finding.found]
        assert mended == []
        lease.renew()


class TestRetryAll:
    def test_all_failed_documents_of_a_collection_are_queued_again_and_no_other(
        self, client: Client, parts: Parts, ingest: IngestParts, answerable: str
    ):
        failed = [upload(client, b"GIF89a" + bytes([n]), f"{n}.gif").json()["id"] for n in range(2)]
        client.post("/v1/collections", json={"name": "other"})
        elsewhere = upload(client, b"GIF89a", "c.gif", data={"collection": "other"}).json()["id"]
        for document_id in (*failed, elsewhere):
            assert ingest_document(document_id, ingest) is IngestOutcome.FAILED

        retried = client.post("/v1/collections/default/retry")

        assert (retried.status_code, retried.json()) == (202, {"documents": 2})
        assert sorted(stuck_ids(parts.database)) == sorted(failed)
        assert client.post("/v1/collections/default/retry").json() == {"documents": 0}


@pytest.fixture
def socket(postgres_url: str) -> Iterator[Path]:
    """A way of this test's own to the PostgreSQL server: without it the server is away."""
    with tempfile.TemporaryDirectory(prefix="ragkv-") as folder:
        socket = Path(folder) / ".s.PGSQL.5432"
        socket.symlink_to(Path(str(make_url(postgres_url).query["host"])) / socket.name)
        yield socket


@pytest.fixture
def on_postgres(
    settings: Settings, socket: Path, postgres_url: str, engine: EchoEngine, loaded: IngestParts
) -> Iterator[Parts]:
    """Prepared parts over PostgreSQL."""
    url = make_url(postgres_url).update_query_dict({"host": str(socket.parent)})
    parts = Parts(msgspec.structs.replace(settings, database_url=url.render_as_string(hide_password=False)), engine)
    lend_models(parts, loaded)
    parts.prepare()
    yield parts
    parts.close()


def _become_due(parts: Parts) -> None:
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(retry_at=utc_now() - timedelta(seconds=1)))


def _wait_until(moment: datetime, document_id: str, parts: Parts) -> None:
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).where(DocumentRow.id == document_id).values(retry_at=moment))


def _end_connections(url: str) -> None:
    name = make_url(url).database
    admin = open_engine(url.replace(f"/{name}?", "/postgres?"))
    with admin.connect() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
        )
    admin.dispose()


@contextmanager
def _without_room(folder: Path) -> Iterator[Path]:
    """A file system of one block, where this process may mount one."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder], check=False).returncode:
        pytest.skip("may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
