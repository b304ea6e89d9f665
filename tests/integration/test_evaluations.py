"""Evaluations of the service on its own questions: started, carried out, shown, and what becomes of them."""

import asyncio
import io
import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import update

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.cli import main
from ragkv.errors import Unavailable
from ragkv.ids import utc_now
from ragkv.service.base.tables import EvaluationRow, QuestionRow
from ragkv.service.checks.pruning import prune
from ragkv.service.documents.documents import store_document
from ragkv.service.evaluations import runs
from ragkv.service.evaluations.outcome import GivenQuestion
from ragkv.service.evaluations.runner import MAX_ATTEMPTS, EvaluationRunner, _Measured
from ragkv.service.evaluations.runs import (
    GIVEN_SETS,
    MAX_OPEN,
    RunRequest,
    delete_run,
    find_run,
    report_of_run,
    start_run,
)
from ragkv.service.parts import Parts
from tests.integration.test_feedback import CORRECTION, QUESTION, ask, rate
from tests.support.over_http import ADA, Client, assert_problem, serving, upload, wait_until


def start(client: Client, **body: object) -> dict:
    response = client.post("/v1/evaluations", json=body)
    assert response.status_code == 202, response.text
    return response.json()


def ended(client: Client, run_id: str) -> dict:
    """The report of a run, once the service has carried it out."""

    def report() -> dict:
        return client.get(f"/v1/evaluations/{run_id}").json()

    wait_until(lambda: report()["run"]["state"] not in ("queued", "running"))
    return report()


@pytest.mark.usefixtures("answerable")
class TestEvaluations:
    def test_rated_questions_are_measured_stitched_and_in_full(self, client: Client, parts: Parts):
        parts.engine.stitches = True
        up, corrected, down = (ask(client, f"{QUESTION} {word}") for word in ("one", "two", "three"))
        rate(client, up)
        rate(client, corrected, "down", correction=CORRECTION)
        rate(client, down, "down")

        report = ended(client, start(client)["id"])

        run, figures = report["run"], report["run"]["fidelity"]
        assert (run["state"], run["total"], run["done"], run["retrieval"]) == ("done", 2, 2, None)
        assert run["settings"]["policy"] == parts.settings.recompute_policy
        assert run["settings"]["model_fingerprint"] == parts.model_fingerprint
        assert {"questions": 2, "skipped": 0, "with_answer": 2, "agree": 100.0}.items() <= figures.items()
        for path in ("/admin/evaluations", f"/admin/evaluations/{run['id']}"):
            assert "apart from case, punctuation and articles" in client.get(path).text, "agreement is of bare words"
        assert 0 < figures["kl"] < 0.03
        by_id = {one["question_id"]: one for one in report["questions"]}
        assert set(by_id) == {up, corrected}
        assert by_id[corrected]["known_answer"] == CORRECTION
        assert by_id[corrected]["answers"] == {"stitched": "Ada Lovelace wrote it.", "full": "Ada Lovelace wrote it."}
        assert (by_id[up]["fidelity"]["f1"], by_id[up]["fidelity"]["f1_full"]) == (1.0, 1.0)
        kls = [one["fidelity"]["kl"] for one in report["questions"]]
        assert kls == sorted(kls, reverse=True)
        assert client.get("/v1/evaluations").json() == {"items": [run], "next": None}

    def test_a_search_is_to_find_what_a_good_answer_cites(self, client: Client):
        rate(client, ask(client))

        report = ended(client, start(client, kind="retrieval")["id"])

        assert report["run"]["retrieval"]["recall_at_2"] == 100.0
        assert report["questions"][0]["retrieval"]["ranks"] == [1]

    def test_questions_that_are_given_need_no_log(self, client: Client):
        passages = [
            {"title": "Ada Lovelace", "text": "Ada Lovelace wrote the first program, for the analytical engine."}
        ]
        known = {"question": QUESTION, "answers": ["Ada Lovelace"], "passages": passages, "id": 1}
        texts = [{"question": QUESTION, "gold": [gold]} for gold in ("analytical engine", "a text that is nowhere")]
        given = [known, *texts, {"question": QUESTION}]

        report = ended(client, start(client, kind="retrieval", source="given", questions=given)["id"])

        found = {one["ordinal"]: one["retrieval"] and one["retrieval"]["ranks"] for one in report["questions"]}
        assert found == {0: [None], 1: [1], 2: [None], 3: None}
        assert report["run"]["retrieval"]["skipped"] == 1
        assert "no passage is known" in report["questions"][-1]["error"]

    def test_the_same_question_is_asked_once_of_all_that_are_logged(self, client: Client):
        first, _, other = ask(client), ask(client), ask(client, "Another question?")
        rate(client, first)

        report = ended(client, start(client, source="logged")["id"])

        assert {one["question_id"] for one in report["questions"]} == {first, other}
        assert report["run"]["fidelity"]["with_answer"] == 1

    def test_a_question_that_is_asked_again_and_again_does_not_crowd_out_others(self, client: Client):
        other = ask(client, "Another question?")
        for _ in range(3):
            last = ask(client)

        report = ended(client, start(client, source="logged", limit=2)["id"])

        assert [one["question_id"] for one in report["questions"]] == [last, other]

    def test_what_cannot_be_measured_is_refused_with_the_reason(self, client: Client):
        assert_problem(client.post("/v1/evaluations", json={}), 422, "rate some first")
        assert_problem(client.post("/v1/evaluations", json={"source": "given"}), 422, "`questions`")
        rate(client, ask(client))
        questions = {"questions": [{"question": QUESTION}]}
        for body in (questions, questions | {"source": "logged"}):
            assert_problem(client.post("/v1/evaluations", json=body), 422, "set `source` to `given`")
        assert_problem(client.post("/v1/evaluations", json={"collection": "nowhere"}), 404, "nowhere")
        assert_problem(client.post("/v1/evaluations", json={"since": "yesterday"}), 422, "ISO 8601")
        assert_problem(client.post("/v1/evaluations", json={"limit": 501}), 400, "limit")
        assert_problem(client.get("/v1/evaluations/nothing%00"), 404)
        given = {"source": "given", "questions": [{"question": QUESTION}] * 200}
        for _ in range(MAX_OPEN):
            start(client, **given)
        assert_problem(client.post("/v1/evaluations", json=given), 409, "cancel one")

    def test_a_run_is_cancelled_with_what_it_has_and_deleted(self, client: Client):
        run = start(client, source="given", questions=[{"question": QUESTION}] * 200)
        cancelled = client.post(f"/v1/evaluations/{run['id']}/cancel").json()

        assert cancelled["state"] == "cancelled"
        assert cancelled["done"] < 200
        assert client.post(f"/v1/evaluations/{run['id']}/cancel").json() == cancelled
        assert client.delete(f"/v1/evaluations/{run['id']}").status_code == 204
        assert_problem(client.get(f"/v1/evaluations/{run['id']}"), 404)

    def test_texts_go_with_the_question_and_figures_stay(self, client: Client, parts: Parts):
        rated = ask(client)
        rate(client, rated)
        run = start(client, source="logged")["id"]
        given = start(client, source="given", questions=[{"question": QUESTION}])["id"]
        before, _ = ended(client, run), ended(client, given)
        assert before["questions"][0]["answers"]

        client.delete(f"/v1/answers/{rated}/feedback")
        long_ago = utc_now() - timedelta(days=100)
        with parts.database.writing() as session:
            session.execute(update(QuestionRow).values(created_at=long_ago))
            session.execute(update(EvaluationRow).where(EvaluationRow.id == given).values(created_at=long_ago))
        assert prune(90, parts.database).evaluation_texts == 2

        for run_id in (run, given):
            report = client.get(f"/v1/evaluations/{run_id}").json()
            [one] = report["questions"]
            assert (one["question"], one["known_answer"], one["answers"]) == (None, None, None)
            assert one["fidelity"]
            assert report["run"]["fidelity"]["questions"] == 1

    def test_given_questions_are_kept_for_the_newest_runs(self, client: Client):
        """They count in no quota: without a bound one key could fill the disk."""
        made = []
        for _ in range(GIVEN_SETS + 2):
            made.append(start(client, source="given", questions=[{"question": QUESTION}] * 50)["id"])
            client.post(f"/v1/evaluations/{made[-1]}/cancel")
        texts = [client.get(f"/v1/evaluations/{run}").json()["questions"][0]["question"] for run in made]

        assert texts == [None, None] + [QUESTION] * GIVEN_SETS

    def test_there_are_so_many_runs(self, client: Client, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(runs, "MAX_RUNS", 1)
        run = start(client, source="given", questions=[{"question": QUESTION}])["id"]
        assert_problem(client.post("/v1/evaluations", json={"source": "logged"}), 409, "delete some")
        client.delete(f"/v1/evaluations/{run}")
        start(client, source="given", questions=[{"question": QUESTION}])

    def test_a_collection_takes_its_runs_along(self, client: Client, parts: Parts, ingest: IngestParts):
        made = client.post("/v1/collections", json={"name": "second"}).json()["id"]
        run = start(client, collection="second", source="given", questions=[{"question": QUESTION}] * 200)["id"]
        client.delete(f"/v1/collections/{made}")

        assert_problem(client.get(f"/v1/evaluations/{run}"), 404)


GIVEN = RunRequest("fidelity", "given", questions=[GivenQuestion(question=QUESTION)] * 2)


class TestHolds:
    """Of processes that are not running: what each does is done here by hand."""

    @pytest.fixture
    def run_id(self, parts_on_either: Parts) -> str:
        tenant_id = parts_on_either.default_collection.tenant_id
        return start_run(tenant_id, "default", GIVEN, parts_on_either.database).id

    def change(self, parts: Parts, **values: object) -> None:
        with parts.database.writing() as session:
            session.execute(update(EvaluationRow).values(**values))

    @pytest.mark.parametrize("ends", [timedelta(seconds=-1), timedelta(days=365)], ids=["past", "by a clock ahead"])
    def test_two_processes_never_measure_the_same_question(self, parts_on_either: Parts, run_id: str, ends: timedelta):
        parts, tenant_id = parts_on_either, parts_on_either.default_collection.tenant_id
        one, other = EvaluationRunner(parts), EvaluationRunner(parts)
        first = one._take()
        assert first is not None
        assert other._take() is None

        self.change(parts, leased_until=utc_now() + ends)  # the first one died, or hangs
        again = other._take()
        assert again is not None
        assert again.ordinal == first.ordinal
        one._record(first, _Measured(error="too late"))
        assert find_run(tenant_id, run_id, parts.database).done == 0
        other._record(again, _Measured(error="in time"))
        assert find_run(tenant_id, run_id, parts.database).done == 1

    def test_a_question_that_ends_the_process_each_time_is_skipped(self, parts_on_either: Parts, run_id: str):
        parts, tenant_id = parts_on_either, parts_on_either.default_collection.tenant_id
        self.change(parts, attempts=MAX_ATTEMPTS)
        runner = EvaluationRunner(parts)
        assert runner._take() is None

        held = runner._take()
        assert held is not None
        assert held.ordinal == 1
        errors = [one.error for one in report_of_run(tenant_id, run_id, parts.database).questions]
        assert any(error and "engine stopped 3 times" in error for error in errors)

    def test_a_question_that_an_outage_interrupts_is_free_at_once_and_costs_no_attempt(
        self, parts: Parts, ingest: IngestParts
    ):
        ref = parts.default_collection
        ingest_document(store_document(ref, "ada.md", io.BytesIO(ADA), parts.intake).document_id, ingest)
        run_id = start_run(ref.tenant_id, "default", GIVEN, parts.database).id

        async def interrupted() -> None:
            await parts.engine.start()
            parts.engine.fail_after = 0
            for runner in [EvaluationRunner(parts) for _ in range(MAX_ATTEMPTS + 1)]:
                with pytest.raises(Unavailable, match="told to"):
                    await runner.step()
            parts.engine.fail_after = None
            assert await EvaluationRunner(parts).step()

        asyncio.run(interrupted())
        [measured, _] = report_of_run(ref.tenant_id, run_id, parts.database).questions
        assert (measured.ordinal, measured.error) == (0, None)

    @pytest.mark.parametrize(
        "changed",
        [
            {"top_k": 3},
            {"choosing_layers": "0"},
            {"instructions": "Answer."},
            {"question_format": "{question}"},
            {"answer_start": "The answer is"},
            {"max_answer_tokens": 7},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_a_run_does_not_go_on_under_other_settings(self, parts: Parts, changed: dict[str, object]):
        run_id = self.begun(parts)
        later = Parts(msgspec.structs.replace(parts.settings, **changed), parts.engine)
        assert EvaluationRunner(later)._take() is None
        later.close()

        assert self.failed_of(run_id, parts) == "the settings changed before it ended: start another"

    def test_a_run_goes_on_at_a_host_with_an_engine_of_its_own(self, parts: Parts):
        run_id = self.begun(parts)
        with closing(Parts(msgspec.structs.replace(parts.settings, engine_url="http://b:8001"), parts.engine)) as other:
            assert EvaluationRunner(other)._take() is not None
        assert self.failed_of(run_id, parts) is None

    def begun(self, parts: Parts) -> str:
        """A run of which one question is taken, by a process that ended."""
        run_id = start_run(parts.default_collection.tenant_id, "default", GIVEN, parts.database).id
        assert EvaluationRunner(parts)._take() is not None
        self.change(parts, leased_until=None)
        return run_id

    def failed_of(self, run_id: str, parts: Parts) -> str | None:
        run = find_run(parts.default_collection.tenant_id, run_id, parts.database)
        return run.error if run.state == "failed" else None

    def test_a_run_of_an_earlier_version_is_shown(self, parts: Parts):
        """Its record of settings has fewer of them."""
        run_id = self.begun(parts)
        with parts.database.writing() as session:
            row = session.get(EvaluationRow, run_id)
            row.settings = {name: value for name, value in row.settings.items() if name != "digest"}

        assert find_run(parts.default_collection.tenant_id, run_id, parts.database).settings.digest == ""

    def test_a_run_that_is_deleted_meanwhile_is_measured_no_further(self, parts_on_either: Parts, run_id: str):
        parts, tenant_id = parts_on_either, parts_on_either.default_collection.tenant_id
        runner = EvaluationRunner(parts)
        held = runner._take()
        assert held is not None
        delete_run(tenant_id, run_id, parts.database)

        assert not runner._renew(held)
        runner._record(held, _Measured(error="too late"))
        assert runner._take() is None


def test_users_questions_come_first(parts: Parts):
    """A measurement waits while one is being answered."""
    answerer = parts.answerer.uncached

    async def wait() -> bool:
        with answerer._counted():
            waiting = asyncio.create_task(answerer.until_idle())
            await asyncio.sleep(0)
            waited = not waiting.done()
        await waiting
        return waited

    assert asyncio.run(wait())


def test_the_command_is_a_gate(parts: Parts, redis_server: object, ingest: IngestParts, tmp_path: Path):
    with serving(parts) as client:
        upload(client)
        data = tmp_path / "set.jsonl"
        data.write_text(json.dumps({"question": QUESTION, "gold": ["a text that is nowhere"]}) + "\n")
        url = ["--url", str(client.base_url)]
        common = ["eval", "run", *url, "--kind", "retrieval", "--data", str(data)]
        passed = CliRunner().invoke(main, [*common, "--fail-under", "0", "--json", str(tmp_path / "run.json")])
        closed = CliRunner().invoke(main, [*common, "--fail-under", "0.5"])
        client.post("/v1/collections", json={"name": "[b]"})
        start(client, collection="[b]", kind="retrieval", source="given", questions=[{"question": QUESTION}])
        listed = CliRunner().invoke(main, ["eval", "runs", *url])

    assert passed.exit_code == 0, passed.output
    assert json.loads((tmp_path / "run.json").read_bytes())["run"]["state"] == "done"
    assert closed.exit_code == 1
    assert "recall at 5 0.000 is under 0.5" in closed.output
    assert listed.output.count("retrieval") == 3
    assert "[b]" in listed.output
