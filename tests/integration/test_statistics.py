"""What questions took, summed up: on SQLite and on a real PostgreSQL, and over HTTP."""

from datetime import UTC, datetime, timedelta

import pytest

from ragkv.ids import new_id
from ragkv.service.base.database import Database
from ragkv.service.base.status import JobStatus
from ragkv.service.base.tables import CollectionRow, DocumentRow, JobRow, QuestionRow
from ragkv.service.base.tenants import CollectionRef, ensure_collection
from ragkv.service.parts import Parts
from ragkv.service.statistics.summary import latest, summary, tier_use
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import Client, assert_problem

MODEL = "model"
NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
QUARTER = timedelta(minutes=15)


@pytest.fixture
def ref(database: Database) -> CollectionRef:
    return ensure_collection(database)


def question(ref: CollectionRef, ttft_ms: float, ago: timedelta = QUARTER, **more: object) -> QuestionRow:
    """Stitched unless said otherwise: 1000 tokens, 100 of them found, 700 stitched, 120 recomputed, 80 computed."""
    tokens = {
        "prompt_tokens": 1000,
        "cached_tokens": 100,
        "stitched_tokens": 700,
        "recomputed_tokens": 120,
        "computed_tokens": 80,
    }
    row = {
        "tenant_id": ref.tenant_id,
        "collection_id": ref.collection_id,
        "text": "Who?",
        "mode": "stitched",
        "finish_reason": "stop",
        "retrieve_ms": 10.0,
        "plan_ms": 1.0,
        "ttft_ms": ttft_ms,
        "engine_ttft_ms": ttft_ms - 11,
        "kv_load_ms": 5.0,
        "recompute_ms": 5.0,
        "total_ms": ttft_ms + 100,
        "completion_tokens": 8,
        "failed_chunks": 0,
        "disk_tokens": 200,
        "model": MODEL,
        "created_at": NOW - ago,
    }
    return QuestionRow(**(row | tokens | more))


def in_full(ref: CollectionRef, engine_ms: float, tokens: int = 900, **more: object) -> QuestionRow:
    counted = {"prompt_tokens": tokens, "computed_tokens": tokens}
    none = dict.fromkeys(("cached_tokens", "stitched_tokens", "recomputed_tokens"), 0)
    return question(ref, engine_ms + 10, mode="full", engine_ttft_ms=engine_ms, **(counted | none | more))


def add(database: Database, *rows: object) -> None:
    with database.writing() as session:
        session.add_all(rows)


class TestSummary:
    def test_nothing_asked_is_zeros_and_unknowns(self, database: Database, ref: CollectionRef):
        found = summary(ref.tenant_id, MODEL, "24h", database, NOW)

        assert (found.questions.total, found.tokens.prompt, found.hit_rate) == (0, 0, None)
        assert (found.first_token.stitched, found.first_token.full) == (None, None)
        assert "ask one" in found.first_token.hint
        assert {bucket.questions for bucket in found.series} == {0}

    def test_percentiles_are_by_nearest_rank(self, database: Database, ref: CollectionRef):
        add(database, *(question(ref, float(ms)) for ms in range(100, 120)))
        stitched = summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token.stitched

        assert (stitched.p50_ms, stitched.p95_ms) == (109, 118)

    def test_one_question_is_its_own_percentiles(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 123.0))
        stitched = summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token.stitched

        assert (stitched.p50_ms, stitched.p95_ms) == (123, 123)

    def test_tokens_add_up_and_saved_ones_did_not_run(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0), question(ref, 100.0, failed_chunks=2), in_full(ref, 900.0))
        found = summary(ref.tenant_id, MODEL, "1h", database, NOW)

        tokens = found.tokens
        assert (tokens.prompt, tokens.saved, tokens.completion) == (2900, 1600, 24)
        assert tokens.prompt == tokens.cached + tokens.stitched + tokens.recomputed + tokens.computed
        assert (found.questions.total, found.questions.stitched, found.questions.full) == (3, 2, 1)

    def test_the_hit_rate_is_of_stitched_questions_alone(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0, failed_chunks=2), in_full(ref, 900.0))
        rate = summary(ref.tenant_id, MODEL, "1h", database, NOW).hit_rate

        assert (rate.device, rate.host, rate.disk, rate.recomputed, rate.computed) == (0.1, 0.5, 0.2, 0.12, 0.08)
        assert rate.failed_chunks == 2

    def test_loads_count_where_the_farthest_part_came_from(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0), question(ref, 100.0, kv_load_ms=9.0), in_full(ref, 900.0))
        add(database, question(ref, 100.0, disk_tokens=0), question(ref, 100.0, remote_tokens=100, kv_load_ms=80.0))
        rate, loads = tier_use(ref.tenant_id, "24h", database, NOW)

        assert [(one.tier, one.questions, one.p50_ms, one.p99_ms) for one in loads] == [
            ("host", 1, 5.0, 5.0),
            ("disk", 2, 5.0, 9.0),
            ("remote", 1, 80.0, 80.0),
        ]
        assert rate is not None
        assert (rate.host, rate.disk, rate.remote) == pytest.approx((0.525, 0.15, 0.025))

    def test_a_window_ends_where_it_says(self, database: Database, ref: CollectionRef):
        add(database, *(question(ref, 100.0, ago) for ago in (QUARTER, 3 * QUARTER, 5 * QUARTER)))
        add(database, question(ref, 100.0, timedelta(days=6)))

        asked = [summary(ref.tenant_id, MODEL, window, database, NOW).questions.total for window in ("1h", "24h", "7d")]
        assert asked == [2, 3, 4]

    def test_another_tenants_questions_do_not_count(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0))
        other = ensure_collection(database, "other").tenant_id

        assert summary(other, MODEL, "24h", database, NOW).questions.total == 0
        assert latest(other, MODEL, 5, database) == []

    def test_documents_are_counted_once_by_what_became_of_their_jobs(self, database: Database, ref: CollectionRef):
        document = DocumentRow(
            id=new_id(), tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256="", name="", num_bytes=1
        )
        add(database, document)
        states = (
            JobStatus.FAILED,
            JobStatus.FAILED,
            JobStatus.QUEUED,
            JobStatus.RUNNING,
            JobStatus.DONE,
        )  # tried again
        jobs = (
            JobRow(tenant_id=ref.tenant_id, document_id=document.id, kind="ingest", status=status, updated_at=NOW)
            for status in states
        )
        add(database, *jobs)

        found = summary(ref.tenant_id, MODEL, "1h", database, NOW).jobs
        assert (found.queued, found.running, found.failed) == (1, 1, 1)
        assert summary(ref.tenant_id, MODEL, "1h", database, NOW + timedelta(hours=2)).jobs.failed == 0


class TestCostInFull:
    def test_unknown_until_something_ran_in_full(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0))
        found = summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token

        assert found.stitched_in_full is None
        assert 'mode "full"' in found.hint

    def test_a_question_in_full_is_what_others_are_measured_by(self, database: Database, ref: CollectionRef):
        """900 tokens took 900 ms, so the 900 that a stitched question had no cache for would have: and its
        retrieval."""
        add(database, question(ref, 130.0), in_full(ref, 900.0))
        found = summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token

        assert (found.stitched_in_full.basis, found.stitched_in_full.runs) == ("full", 1)
        assert found.stitched_in_full.p50_ms == pytest.approx(910)
        assert found.stitched_in_full.times_sooner == pytest.approx(7)
        assert found.hint is None

    def test_its_percentiles_are_of_the_whole_time(self, database: Database, ref: CollectionRef):
        """Those that searched longest have the shortest prompts here."""
        shapes = ((10.0, 1000), (20.0, 300), (30.0, 200))
        asked = [question(ref, 130.0, retrieve_ms=ms, prompt_tokens=tokens) for ms, tokens in shapes]
        add(database, *asked, in_full(ref, 900.0))
        found = summary(ref.tenant_id, MODEL, "24h", database, NOW)

        in_full_ms = found.first_token.stitched_in_full
        assert (in_full_ms.p50_ms, in_full_ms.p95_ms) == pytest.approx((220, 910))
        (step,) = (bucket for bucket in found.series if bucket.questions)
        assert step.stitched_in_full_ms == pytest.approx(220)

    def test_the_database_reckons_as_the_price_does(self, database: Database, ref: CollectionRef):
        lengths = (200, 1000, 2000, 4000, 100_000)
        add(database, *(in_full(ref, 20 + tokens * 0.3 + tokens**2 * 1e-5, tokens) for tokens in lengths))
        long = {"prompt_tokens": 200_000, "computed_tokens": 199_080}
        add(database, question(ref, 130.0), question(ref, 100.0, **long))
        found = summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token.stitched_in_full

        assert found.p50_ms == pytest.approx(10 + 20 + 0.3 * 900 + 1e-5 * 2 * 900 * (100 + 450))
        assert found.p95_ms == pytest.approx(10 + 20 + 0.3 * 199_900 + 1e-5 * 2 * 199_900 * (100 + 199_900 / 2))

    def test_prompts_that_were_recomputed_whole_will_do(self, database: Database, ref: CollectionRef):
        whole = {"stitched_tokens": 0, "recomputed_tokens": 820}
        add(database, question(ref, 130.0), question(ref, 911.0, **whole))
        found = summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token.stitched_in_full

        assert (found.basis, found.runs) == ("recomputed", 1)
        assert found.p50_ms == pytest.approx(910)

    def test_what_ran_long_ago_says_nothing(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0), in_full(ref, 900.0, ago=timedelta(days=8)))

        assert summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token.stitched_in_full is None

    def test_what_another_model_took_says_nothing(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0), in_full(ref, 900.0, model="another"), in_full(ref, 90.0, model=None))

        assert summary(ref.tenant_id, MODEL, "1h", database, NOW).first_token.stitched_in_full is None


class TestSeries:
    @pytest.mark.parametrize(("window", "steps"), [("1h", 61), ("24h", 49), ("7d", 57)])
    def test_steps_cover_the_window_without_gaps(self, database: Database, ref: CollectionRef, window: str, steps: int):
        found = summary(ref.tenant_id, MODEL, window, database, NOW)
        starts = [bucket.start.timestamp() for bucket in found.series]

        assert len(starts) == steps
        assert starts == [starts[0] + i * found.bucket_s for i in range(steps)]
        assert starts[0] <= found.since.timestamp()
        assert starts[-1] <= found.until.timestamp() < starts[-1] + found.bucket_s

    def test_a_question_counts_in_its_step(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0), question(ref, 300.0), in_full(ref, 900.0))
        found = summary(ref.tenant_id, MODEL, "24h", database, NOW)
        (step,) = (bucket for bucket in found.series if bucket.questions)

        assert 0 <= (NOW - QUARTER - step.start).total_seconds() < found.bucket_s
        assert (step.stitched_ms, step.full_ms) == (100, 910)
        assert step.stitched_in_full_ms == pytest.approx(910)
        assert (step.cached, step.stitched, step.recomputed, step.computed) == (200, 1400, 240, 1060)

    def test_all_steps_together_are_the_whole(self, database: Database, ref: CollectionRef):
        """To the last fraction of a second, in which one database may round."""
        moments = (timedelta(seconds=s) for s in (0, 0.2, 0.5, 27, 60, 61.5, 3599.9))
        add(database, *(question(ref, 100.0, ago) for ago in moments))
        found = summary(ref.tenant_id, MODEL, "1h", database, NOW)

        assert sum(bucket.questions for bucket in found.series) == found.questions.total == 7


class TestLatest:
    def test_newest_come_first_with_what_they_took(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0, 2 * QUARTER, text="first"), question(ref, 90.0, text="second"))
        found = latest(ref.tenant_id, MODEL, 5, database)

        assert [asked.text for asked in found] == ["second", "first"]
        assert (found[0].ttft_ms, found[0].collection, found[0].tokens.saved) == (90, "default", 800)

    def test_a_collection_that_is_deleted_takes_its_questions_along(self, database: Database, ref: CollectionRef):
        add(database, question(ref, 100.0))
        with database.writing() as session:
            session.delete(session.get_one(CollectionRow, ref.collection_id))

        assert latest(ref.tenant_id, MODEL, 5, database) == []


class TestRoute:
    def test_questions_show_up(self, client: Client, answerable: str):
        for mode in ("stitched", "full"):
            assert client.post("/v1/ask", json={"question": "Who?", "mode": mode}).status_code == 200
        found = client.get("/v1/statistics", params={"window": "1h"}).json()

        assert found["summary"]["questions"] == {"total": 2, "stitched": 1, "full": 1}
        assert found["summary"]["first_token"]["stitched_in_full"]["runs"] == 1
        assert found["summary"]["tokens"]["prompt"] > 0
        assert found["engine"]["ready"] is True
        assert found["engine"]["kv_cache_gib"] > 0

    def test_a_window_that_is_not_known_is_refused(self, client: Client):
        assert_problem(client.get("/v1/statistics", params={"window": "1y"}), 400, "window")

    def test_a_tenant_sees_its_own(self, client: Client, answerable: str, parts: Parts):
        client.post("/v1/ask", json={"question": "Who?"})
        other = {"Authorization": f"Bearer {issue_key_by_name('other', 'x', ['read'], parts.database).key}"}

        assert client.get("/v1/statistics", headers=other).json()["summary"]["questions"]["total"] == 0
        assert client.get("/v1/statistics").status_code == 401
