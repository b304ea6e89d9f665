"""Old records go: questions, jobs and keys that ended. On SQLite and on a real PostgreSQL."""

import logging
from datetime import datetime, timedelta

import pytest
from sqlalchemy import func, select, update

from ragkv.errors import Unauthorised
from ragkv.ids import BATCH, utc_now
from ragkv.service.access.gate import Gate
from ragkv.service.access.rate import RateLimit
from ragkv.service.base.caller import KEY_SCOPES
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.redis import connect
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import ApiKeyRow, DocumentRow, JobRow, QuestionRow
from ragkv.service.base.tenants import CollectionRef, ensure_collection
from ragkv.service.checks.pruning import JOBS_KEPT, Pruned, prune
from ragkv.service.documents.job_statements import INGEST
from ragkv.service.keys.keys import Maker, authenticate, issue_key, list_keys, recognise, revoke_key
from ragkv.service.parts import Parts
from ragkv.service.statistics.summary import latest, summary
from ragkv.settings import Settings
from tests.integration.test_statistics import MODEL, question
from tests.support.wrong_clock import clock_ahead
from workers.sweep import Sweeper

YEAR = timedelta(days=365)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def ref(database: Database) -> CollectionRef:
    return ensure_collection(database)


def ask(database: Database, ref: CollectionRef, *ages: timedelta) -> None:
    with database.writing() as session:
        session.add_all(question(ref, 100.0, created_at=utc_now() - age) for age in ages)


def asked(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(QuestionRow)) or 0


def queue(database: Database, ref: CollectionRef, status: JobStatus, age: timedelta) -> str:
    """A document with one job, last changed so long ago. Returns the job's id."""
    with database.writing() as session:
        document = DocumentRow(tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256=f"{status}{age}", name="a.md", num_bytes=1)  # fmt: skip
        session.add(document)
        session.flush()
        moment = utc_now() - age
        job = JobRow(tenant_id=ref.tenant_id, document_id=document.id, kind=INGEST, status=status, created_at=moment, updated_at=moment)  # fmt: skip
        session.add(job)
        session.flush()
        return job.id


def jobs(database: Database) -> set[str]:
    with database.reading() as session:
        return set(session.scalars(select(JobRow.id)))


def ended(database: Database, key_id: str, moment: datetime, **changes: object) -> None:
    """Revoked at the moment."""
    with database.writing() as session:
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(revoked_at=moment, **changes))


class TestQuestions:
    def test_those_older_than_the_retention_go_and_no_others(self, database: Database, ref: CollectionRef):
        days = timedelta(days=90)
        ask(database, ref, timedelta(0), days - MINUTE, days + MINUTE, 10 * days)

        assert prune(90, database) == Pruned(questions=2, jobs=0, keys=0)
        assert asked(database) == 2
        assert prune(90, database) == Pruned(0, 0, 0)

    def test_zero_days_keep_them_for_ever(self, database: Database, ref: CollectionRef):
        ask(database, ref, 10 * YEAR)

        assert not prune(0, database)
        assert asked(database) == 1

    def test_more_than_a_batch(self, database: Database, ref: CollectionRef):
        ask(database, ref, *([YEAR] * (2 * BATCH + 1)), timedelta(0))

        assert prune(90, database).questions == 2 * BATCH + 1
        assert asked(database) == 1

    def test_statistics_are_the_same_before_and_after_at_the_shortest_retention(
        self, database: Database, ref: CollectionRef
    ):
        now = utc_now()
        ask(database, ref, *(timedelta(days=day, hours=1) for day in range(12)))
        before = summary(ref.tenant_id, MODEL, "7d", database, now)

        assert prune(7, database).questions == 5
        assert before.questions.total == 7
        assert summary(ref.tenant_id, MODEL, "7d", database, now) == before
        assert len(latest(ref.tenant_id, MODEL, 100, database)) == 7


class TestJobs:
    def test_those_that_ended_long_ago_go_and_open_ones_stay(self, database: Database, ref: CollectionRef):
        old, recent = JOBS_KEPT + MINUTE, JOBS_KEPT - MINUTE
        gone = {queue(database, ref, status, old) for status in (JobStatus.DONE, JobStatus.FAILED)}
        kept = {queue(database, ref, status, old) for status in (JobStatus.QUEUED, JobStatus.RUNNING)}
        kept |= {queue(database, ref, status, recent) for status in JobStatus}
        assert jobs(database) == gone | kept

        assert prune(90, database) == Pruned(questions=0, jobs=2, keys=0)
        assert jobs(database) == kept


class TestKeys:
    def test_a_key_goes_a_year_after_it_ended_and_stays_refused(
        self, database: Database, ref: CollectionRef, caplog: pytest.LogCaptureFixture
    ):
        old, recent, living = (issue_key(ref.tenant_id, name, ["read"], database) for name in ("old", "recent", "now"))  # fmt: skip
        ended(database, old.view.id, utc_now() - YEAR - MINUTE)
        ended(database, recent.view.id, utc_now() - YEAR + MINUTE)
        with caplog.at_level(logging.INFO, "ragkv"):
            assert prune(90, database) == Pruned(questions=0, jobs=0, keys=1)

        assert f"{old.view.id}, 'old'" in caplog.text
        assert [key.id for key in list_keys(ref.tenant_id, 10, None, database).items] == [
            recent.view.id,
            living.view.id,
        ]
        for refused in (lambda: authenticate(old.key, database), lambda: recognise(old.view.id, database)):
            with pytest.raises(Unauthorised):
                refused()
        authenticate(living.key, database)

    def test_one_that_expired_too(self, database: Database, ref: CollectionRef):
        expired, _ = (issue_key(ref.tenant_id, name, ["read"], database, days=1) for name in "ab")
        with database.writing() as session:
            old = utc_now() - YEAR - MINUTE
            session.execute(update(ApiKeyRow).where(ApiKeyRow.id == expired.view.id).values(expires_at=old))

        assert prune(90, database).keys == 1

    def test_without_any_living_key_the_service_stays_closed(
        self, database: Database, ref: CollectionRef, settings: Settings
    ):
        keys = [issue_key(ref.tenant_id, str(i), ["read"], database).view.id for i in range(3)]
        for key in keys:
            ended(database, key, utc_now() - 2 * YEAR)
        assert prune(90, database).keys == 2
        assert not prune(90, database)

        limit = RateLimit(connect(settings), 0, fails_open=True)
        gate = Gate(database, limit, ref.tenant_id, open_without_keys=True)
        assert not gate.is_open()
        with pytest.raises(Unauthorised):
            gate.admit(None)

    def test_one_stays_while_it_explains_where_another_came_from(self, database: Database, ref: CollectionRef):
        maker = issue_key(ref.tenant_id, "maker", KEY_SCOPES, database).view.id
        made = issue_key(ref.tenant_id, "made", ["read"], database, maker=Maker(maker)).view.id
        issue_key(ref.tenant_id, "newest", ["read"], database)
        ended(database, maker, utc_now() - 2 * YEAR, revoked_by=maker)
        assert not prune(90, database)

        revoke_key(made, database)
        assert not prune(90, database)
        ended(database, made, utc_now() - 2 * YEAR)
        assert prune(90, database).keys == 2


def test_a_worker_whose_clock_is_a_year_ahead_removes_nothing_early(migrated_postgres_url: str):
    """The database's clock counts."""
    database = Database(migrated_postgres_url)
    ask(database, ensure_collection(database), timedelta(0))

    with clock_ahead(YEAR):
        assert not prune(90, database)
    assert asked(database) == 1
    database.close()


def test_a_sweep_prunes(parts: Parts, redis_server: EmbeddedRedis):
    ask(parts.database, parts.default_collection, timedelta(days=91), timedelta(days=89))
    Sweeper(parts).sweep()

    assert asked(parts.database) == 1
