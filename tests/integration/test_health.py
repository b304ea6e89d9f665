"""Health as operators see it: what is away, what waits, and what hangs."""

import asyncio
import threading
import time
from contextlib import closing
from datetime import timedelta
from io import BytesIO

import msgspec
import pytest
from litestar.testing import TestClient
from sqlalchemy import Connection, make_url, text, update

from api.app import create_app
from api.v1 import health
from api.v1.health import Readiness
from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.migrate import migrate
from ragkv.service.base.redis import redis_url
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import DocumentRow, JobRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.documents.documents import accept_document
from ragkv.service.documents.jobs import Backlog, Waiting
from ragkv.service.health import condition
from ragkv.service.observe.heartbeats import this_worker
from ragkv.service.parts import Parts
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import HERE, Client, wait_until
from workers.alive import Pulse, trouble


def readiness(client: Client) -> tuple[int, Readiness]:
    response = client.get("/readyz")
    return response.status_code, msgspec.convert(response.json(), Readiness)


def beat_before(parts: Parts, silent_s: float, stalled_s: float, worker: str = "w/1") -> None:
    """A report that came some seconds ago."""
    parts.redis.hset("ragkv:workers", worker, f"{time.time() - silent_s} {stalled_s}")


class TestWorkers:
    def test_a_worker_that_reports_is_seen_and_one_that_stopped_is_not(self, client: Client, parts: Parts):
        pulse = Pulse(parts.heartbeats, interval_s=0.05)
        pulse.start()
        wait_until(lambda: readiness(client)[1].worker == "ok")
        pulse.stop()

        status, seen = readiness(client)
        assert (status, seen.degraded) == (200, ["worker"])
        assert seen.worker.startswith("no worker runs")

    @pytest.mark.parametrize(
        ("silent_s", "stalled_s", "words"),
        [(3, 0, "ok"), (95, 0, "no worker has reported for 95 s"), (3, 840, "no progress on the current document for 14 min")],
    )  # fmt: skip
    def test_a_silent_and_a_stalled_worker_are_told_apart(
        self, client: Client, parts: Parts, silent_s: float, stalled_s: float, words: str
    ):
        beat_before(parts, silent_s, stalled_s)

        assert readiness(client)[1].worker.startswith(words)

    def test_one_that_works_is_enough(self, client: Client, parts: Parts):
        beat_before(parts, 95, 0, "gone/1")
        beat_before(parts, 1, 5000, "hangs/2")
        beat_before(parts, 1, 2, "works/3")

        assert readiness(client)[1].worker == "ok"
        assert [beat.worker for beat in parts.heartbeats.read()][-1] == "gone/1"

    def test_an_hour_later_a_worker_is_forgotten(self, parts: Parts, redis_server: EmbeddedRedis):
        beat_before(parts, 3700, 0, "gone/1")
        parts.heartbeats.beat("here/2", 0)

        assert [beat.worker for beat in parts.heartbeats.read()] == ["here/2"]

    def test_standing_still_is_counted_while_a_document_is_read_alone(self, parts: Parts, redis_server: EmbeddedRedis):
        pulse = Pulse(parts.heartbeats)
        with pulse.working():
            time.sleep(0.1)
            pulse.beat()
            assert parts.heartbeats.read()[0].stalled_s >= 0.1
            pulse.progressed()
            pulse.beat()
            assert parts.heartbeats.read()[0].stalled_s < 0.1
        pulse.beat()
        assert parts.heartbeats.read()[0].stalled_s == 0

    def test_the_health_check_of_a_workers_machine(self, parts: Parts, redis_server: EmbeddedRedis):
        parts.heartbeats.beat("another-machine/1", 0)
        assert trouble(parts.settings) == "no worker here reports and makes progress (0 known)"
        parts.heartbeats.beat(this_worker(), 0)
        assert trouble(parts.settings) is None
        beat_before(parts, 0, 5000, this_worker())
        assert trouble(parts.settings) == "no worker here reports and makes progress (1 known)"
        redis_server.stop()
        assert trouble(parts.settings) is None, "Kubernetes would restart all workers for an outage of Redis"


class TestQueue:
    def test_its_age_is_that_of_the_oldest_job_that_waits(self, database_url: str):
        migrate(database_url)
        with closing(Database(database_url)) as database:
            assert Backlog(database).read() == Waiting(0, 0.0)
            ref = ensure_collection(database)
            with database.writing() as session:
                for minutes, status in ((90, JobStatus.RUNNING), (5, JobStatus.QUEUED), (1, JobStatus.QUEUED)):
                    mine = {"tenant_id": ref.tenant_id, "document_id": f"d{minutes}"}
                    row = DocumentRow(id=mine["document_id"], collection_id=ref.collection_id, sha256=f"{minutes}",
                                      tenant_id=ref.tenant_id, name="a.md", num_bytes=1)  # fmt: skip
                    session.add(row)
                    session.flush()
                    began = utc_now() - timedelta(minutes=minutes)
                    session.add(JobRow(kind="ingest", status=status, created_at=began, **mine))
            waiting = Backlog(database).read()
        assert waiting.jobs == 2 and 300 <= waiting.oldest_s < 330

    def test_a_job_that_waits_for_long_degrades(self, client: Client, parts: Parts):
        accept_document(parts.default_collection, "a.md", BytesIO(b"# A\n\nAda."), parts.intake)
        accept_document(parts.default_collection, "b.md", BytesIO(b"# B\n\nBob."), parts.intake)
        assert readiness(client)[1].queue == "ok"
        with parts.database.writing() as session:
            session.execute(update(JobRow).values(created_at=utc_now() - timedelta(minutes=40)))
        parts.backlog = Backlog(parts.database, fresh_s=0)

        status, seen = readiness(client)
        assert (status, seen.queue) == (200, "2 documents wait to be read, the oldest for 40 min")
        assert "queue" in seen.degraded
        shown = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
        assert 2400 <= float(shown["ragkv_queue_age_seconds"]) < 2460
        assert float(shown["ragkv_disk_free_bytes"]) > 0

    def test_a_full_redis_degrades_and_the_depth_is_not_told(self, client: Client, parts: Parts):
        """It answers, but nobody can be woken: documents are queued once it has room."""
        parts.redis.config_set("maxmemory", 1)
        try:
            status, seen = readiness(client)
            figures = client.get("/metrics").text
            page = client.get("/admin").text
        finally:
            parts.redis.config_set("maxmemory", 0)

        assert (status, seen.redis, seen.degraded) == (200, "ok", ["worker", "queue"])
        assert seen.queue == "Redis is full or cannot be reached: uploads wait until it has room"
        assert seen.queue in page
        assert "ragkv_queue_depth " not in figures
        assert readiness(client)[1].queue == "ok" and "ragkv_queue_depth 0.0" in client.get("/metrics").text

    def test_a_full_redis_that_has_to_count_requests_is_as_good_as_away(
        self, parts: Parts, redis_server: EmbeddedRedis
    ):
        """Requests get 503 where the limit of a configured server cannot be kept."""
        parts.settings = msgspec.structs.replace(parts.settings, redis_url=redis_url(parts.settings))
        assert condition.redis(parts) == "ok"
        parts.redis.config_set("maxmemory", 1)

        assert condition.redis(parts) == condition.AWAY
        parts.settings = msgspec.structs.replace(parts.settings, requests_per_minute=0, tenant_requests_per_minute=0)
        assert condition.redis(parts) == "ok"

    def test_a_database_that_takes_no_changes_degrades(
        self, parts: Parts, migrated_postgres_url: str, postgres_admin: Connection
    ):
        name = make_url(migrated_postgres_url).database
        postgres_admin.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
        with closing(Database(migrated_postgres_url)) as parts.database:
            parts.backlog = Backlog(parts.database)

            assert condition.database(parts) == "ok"
            assert condition.queue(parts).startswith("the database takes no changes")

    def test_however_often_it_is_asked_it_is_counted_now_and_then(self, parts: Parts):
        assert parts.backlog.read() is parts.backlog.read()


class TestDisk:
    def test_a_disk_that_is_nearly_full_degrades(self, client: Client, parts: Parts):
        parts.settings = msgspec.structs.replace(parts.settings, min_free_bytes=2**60)

        status, seen = readiness(client)
        assert status == 200 and "disk" in seen.degraded
        assert seen.disk.startswith("the disk is nearly full") and "free up space" in seen.disk


class TestWords:
    def test_a_qdrant_that_is_away_is_503_and_names_no_host(self, parts: Parts, redis_server: EmbeddedRedis):
        parts.settings = msgspec.structs.replace(parts.settings, qdrant_url="http://svc:hunter2@127.0.0.1:9")
        with TestClient(create_app(parts), base_url=HERE) as client:
            wait_until(lambda: readiness(client)[1].index == condition.AWAY)
            response = client.get("/readyz")

        assert response.status_code == 503
        assert "hunter2" not in response.text and "127.0.0.1" not in response.text

    def test_a_database_that_is_away_is_503_and_says_nothing_of_its_driver(self, client: Client, parts: Parts):
        parts.database.close()
        parts.database = Database("postgresql://svc:hunter2@127.0.0.1:9/ragkv")
        parts.backlog = Backlog(parts.database)

        status, seen = readiness(client)
        assert (status, seen.database) == (503, condition.AWAY)
        assert client.get("/readyz").headers["retry-after"]
        assert client.get("/health").status_code == 503
        assert seen.queue == "not known while the database cannot be reached"

    def test_a_redis_that_is_away_is_503_and_names_no_socket(
        self, client: Client, parts: Parts, redis_server: EmbeddedRedis
    ):
        redis_server.stop()
        response = client.get("/readyz")

        assert (response.status_code, response.json()["redis"]) == (503, condition.AWAY)
        assert response.json()["worker"] == "not known while Redis cannot be reached"
        assert "sock" not in response.text

    def test_the_overview_shows_them(self, client: Client):
        page = client.get("/admin").text

        assert "no worker runs: uploads wait until one does" in page


class TestPatience:
    def test_a_part_that_hangs_is_asked_once_and_holds_nobody_up(self, client: Client, monkeypatch: pytest.MonkeyPatch):
        asked, release = [], threading.Event()

        def hang(parts: Parts) -> str:
            asked.append("disk")
            release.wait(20)
            return "ok"

        monkeypatch.setitem(health.LOOKS, "disk", hang)
        monkeypatch.setattr(health, "PATIENCE_S", 0.2)
        try:
            for _ in range(3):
                assert readiness(client)[1].disk == health.SILENT
            assert len(asked) == 1
        finally:
            release.set()
        wait_until(lambda: readiness(client)[1].disk == "ok")

    @pytest.mark.anyio
    async def test_an_engine_that_hangs_is_asked_once(self, parts: Parts, monkeypatch: pytest.MonkeyPatch):
        asked, release = [], asyncio.Event()

        class Hanging(EchoEngine):
            async def status(self) -> str:
                asked.append("engine")
                await release.wait()
                return "ok"

        parts.engine = Hanging(parts.settings)
        monkeypatch.setattr(health, "PATIENCE_S", 0.2)
        looked = health.Probes(parts)
        found = await asyncio.gather(*(looked.look() for _ in range(3)))

        assert [seen["engine"] for seen in found] == [health.SILENT] * 3
        assert len(asked) == 1
        release.set()
        assert (await looked.look())["engine"] == "ok"
