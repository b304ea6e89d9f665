"""Feedback on answers, the log of questions, and the evaluation set that becomes of both."""

import itertools
import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import select, update

from bench.evaluate import export
from bench.known_questions import read_questions
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.ids import utc_now
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.redis import is_there
from ragkv.service.base.tables import QuestionRow
from ragkv.service.checks.pruning import prune
from ragkv.service.parts import Parts
from ragkv.service.questions.questions import evaluation_set
from tests.support.over_http import Client, assert_problem, events_of

QUESTION = "Who wrote the first program?"
CORRECTION = "Ada Lovelace, in 1843."


def ask(client: Client, question: str = QUESTION) -> str:
    return str(client.post("/v1/ask", json={"question": question}).json()["id"])


def rate(client: Client, answer_id: str, rating: str = "up", **more: str | None):
    return client.put(f"/v1/answers/{answer_id}/feedback", json={"rating": rating, **more})


def log(client: Client, **params: str) -> list[dict]:
    return client.get("/v1/questions", params=params).json()["items"]


def evaluation(client: Client) -> list[dict]:
    return [json.loads(line) for line in client.get("/v1/questions/evaluation").text.splitlines()]


@pytest.mark.usefixtures("answerable")
class TestFeedback:
    def test_an_answer_is_rated_corrected_and_commented_on_and_the_last_word_counts(self, client: Client):
        answer_id = ask(client)
        rate(client, answer_id)
        given = rate(client, answer_id, "down", correction=f" {CORRECTION} ", comment="No year.\x00")

        assert given.status_code == 200
        [shown] = log(client)
        assert shown["id"] == answer_id
        assert shown["feedback"] == given.json()
        assert {"rating": "down", "correction": CORRECTION, "comment": "No year.\ufffd"}.items() <= given.json().items()
        assert given.json()["answer"] == "Ada Lovelace wrote it."

    def test_feedback_that_is_deleted_takes_its_copies_along(self, client: Client):
        answer_id = ask(client)
        rate(client, answer_id)
        assert client.delete(f"/v1/answers/{answer_id}/feedback").status_code == 204

        assert log(client)[0]["feedback"] is None
        assert evaluation(client) == []
        assert_problem(client.delete(f"/v1/answers/{answer_id}/feedback"), 404)

    def test_what_is_no_answer_or_no_feedback_is_refused_with_the_reason(self, client: Client):
        for unknown in ("0" * 32, "nothing", "%00"):
            assert_problem(rate(client, unknown), 404, "24 hours")
        answer_id = ask(client)
        assert_problem(rate(client, answer_id, "sideways"), 400, "rating")
        assert_problem(rate(client, answer_id, correction="x" * 20_001), 400, "20000")

    def test_a_streamed_answer_and_those_of_the_openai_api_can_be_rated(self, client: Client):
        streamed = client.post("/v1/ask", json={"question": QUESTION, "stream": True})
        done = dict(events_of(streamed.text))["done"]
        model = client.get("/v1/models").json()["data"][0]["id"]
        body = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
        chat = client.post("/v1/chat/completions", json=body).json()
        response = client.post("/v1/responses", json={"model": model, "input": QUESTION}).json()

        for answer_id in (done["id"], chat["id"], response["id"], chat["ragkv"]["answer_id"]):
            assert rate(client, answer_id).status_code == 200, answer_id
        assert [one["feedback"]["rating"] for one in log(client)] == ["up"] * 3

    def test_a_tenant_keeps_texts_of_questions_for_as_long_as_it_wishes(self, client: Client, parts: Parts):
        """Off, for days, or as the service does. Counts stay, and so does feedback, which has a copy."""
        kept, rated = ask(client, "Kept before?"), ask(client, "Rated?")
        rate(client, rated)
        assert client.get("/v1/questions/retention").json() == {"days": None, "service_days": 90, "applies": 90}
        assert client.put("/v1/questions/retention", json={"days": 0}).json()["applies"] == 0
        off, rated_while_off = ask(client, "Asked while off?"), ask(client, "Rated while off?")
        rate(client, rated_while_off)

        assert [one["id"] for one in log(client)] == [rated_while_off, rated, kept]
        assert prune(90, parts.database).question_texts == 2
        assert [one["question"] for one in log(client)] == ["Rated while off?", "Rated?"]
        assert [one["question"] for one in log(client, rating="none")] == []
        assert client.get("/v1/statistics").json()["summary"]["questions"]["stitched"] == 4
        assert "(text not kept)" in client.get("/admin").text
        assert "Questions are not kept" in client.get("/admin/questions").text
        with parts.database.reading() as session:
            texts = session.scalars(select(QuestionRow.text).where(QuestionRow.id.in_([kept, off, rated]))).all()
        assert texts == [""] * 3

        client.put("/v1/questions/retention", json={"days": 7})
        for age in (6, 8):
            moved = update(QuestionRow).where(QuestionRow.id == ask(client, f"Asked {age} days ago?"))
            with parts.database.writing() as session:
                session.execute(moved.values(created_at=utc_now() - timedelta(days=age)))
        assert prune(90, parts.database).question_texts == 1
        assert [one["question"] for one in log(client, rating="none")] == ["Asked 6 days ago?"]

        assert client.put("/v1/questions/retention", json={}).json()["days"] is None
        assert_problem(client.put("/v1/questions/retention", json={"days": 91}), 422, "90 days at most")

    def test_an_answer_of_the_cache_is_rated_by_its_own_id_and_then_in_the_log(self, client: Client):
        client.patch("/v1/collections/default", json={"answer_cache": {"enabled": True}})
        first, second = ask(client), ask(client)
        assert first != second
        rate(client, second, "down")

        assert {one["id"]: one["mode"] for one in log(client)} == {first: "stitched", second: None}

    def test_the_log_is_filtered_paged_and_exported(self, client: Client):
        up, down, none = (ask(client, f"{QUESTION} {word}") for word in ("ALPHA", "beta", "gamma_%"))
        rate(client, up)
        rate(client, down, "down")

        def ids(**params: str) -> list[str]:
            return [one["id"] for one in log(client, **params)]

        assert ids() == [none, down, up]
        assert (ids(rating="up"), ids(rating="down"), ids(rating="none")) == ([up], [down], [none])
        assert ids(rating="any", collection="default") == [down, up]
        assert (ids(text="alpha"), ids(text="_%"), ids(text="delta")) == ([up], [none], [])
        moment = log(client, text="beta")[0]["asked_at"]
        assert (ids(since=moment), ids(before=moment)) == ([none, down], [up])
        first = client.get("/v1/questions", params={"limit": 2}).json()
        assert ids(cursor=first["next"]) == [up]
        lines = client.get("/v1/questions/export", params={"rating": "any"}).text.splitlines()
        assert [json.loads(line)["id"] for line in lines] == [down, up]
        assert_problem(client.get("/v1/questions", params={"collection": "nowhere"}), 404)
        assert ids(text="\u0390" * 1000) == []
        for path in ("/v1/questions", "/v1/questions/export", "/admin/questions"):
            assert_problem(client.get(path, params={"text": "a" * 60_000}), 400)
        assert_problem(client.get("/v1/questions", params={"since": "yesterday"}), 422, "ISO 8601")
        assert_problem(client.get("/v1/questions", params={"cursor": "x"}), 422, "cursor")


@pytest.mark.usefixtures("answerable")
def test_rated_questions_are_an_evaluation_set_that_fidelity_reads(client: Client, tmp_path: Path):
    """The correction if there is one, else the answer that was rated up; one that was only rated down says nothing."""
    corrected, good, bad = (ask(client, f"{QUESTION} {word}") for word in ("one", "two", "three"))
    rate(client, corrected, "down", correction=CORRECTION)
    rate(client, good)
    rate(client, bad, "down")
    file = tmp_path / "set.jsonl"
    file.write_bytes(client.get("/v1/questions/evaluation").content)

    questions = read_questions(file)
    assert [(one.id, one.answers) for one in questions] == [
        (corrected, (CORRECTION,)),
        (good, ("Ada Lovelace wrote it.",)),
    ]
    assert "Charles Babbage" in questions[0].passages[0].text


@pytest.mark.usefixtures("answerable")
def test_an_evaluation_set_is_read_a_page_at_a_time(client: Client, parts: Parts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ragkv.service.questions.questions.MAX_PAGE", 2)
    monkeypatch.setattr("api.v1.lists.MAX_PAGE", 2)
    rated = [ask(client, f"{QUESTION} {word}") for word in ("one", "two", "three", "four", "five")]
    for answer_id in rated:
        rate(client, answer_id)
    rows = evaluation_set(parts.default_collection, parts.database)

    assert [question.id for question in itertools.islice(rows, 2) if question] == rated[:2]
    rate(client, rated[2], "down")
    assert [question.id for question in rows if question] == rated[3:], "the others are read later"
    assert [question["id"] for question in evaluation(client)] == [*rated[:2], *rated[3:]]


def test_deleting_a_document_takes_its_passages_out_of_feedback(client: Client, answerable: str):
    rate(client, ask(client))
    client.delete(f"/v1/documents/{answerable}")

    assert evaluation(client) == []
    assert len(log(client, rating="up")) == 1


def test_deleting_a_document_takes_recent_answers_of_its_collection_out_of_redis(
    client: Client, answerable: str, parts: Parts
):
    answer_id = ask(client)
    client.delete(f"/v1/documents/{answerable}")

    assert_problem(rate(client, answer_id), 404, "24 hours")
    tenant_id = parts.default_collection.tenant_id
    assert parts.redis.keys(f"ragkv:recent:*{tenant_id}*") == []


@pytest.mark.usefixtures("answerable")
def test_recent_answers_take_bounded_memory(client: Client, parts: Parts, monkeypatch: pytest.MonkeyPatch):
    """The oldest of a collection go first, and one that is too long is not kept."""
    monkeypatch.setattr("ragkv.service.answer_cache.recent.MAX_OF_COLLECTION", 2)
    answers = [ask(client) for _ in range(3)]

    assert [rate(client, answer_id).status_code for answer_id in answers] == [404, 200, 200]
    monkeypatch.setattr("ragkv.service.answer_cache.recent.MAX_BYTES", 10)
    assert rate(client, ask(client)).status_code == 404


def test_an_answer_whose_document_was_replaced_takes_no_feedback(
    client: Client, answerable: str, ingest: IngestParts, parts: Parts
):
    """The chunk has its old id and another text: neither is it taken for the passage of the prompt, nor is the answer
    from the old text kept."""
    answer_id = ask(client)
    key = f"ragkv:recent:{parts.default_collection.tenant_id}:{answer_id}"
    kept = parts.redis.get(key)
    client.put(f"/v1/documents/{answerable}", files={"file": ("ada.md", b"# Ada Lovelace\n\nShe liked horses.\n")})
    assert_problem(rate(client, answer_id), 404, "24 hours")
    ingest_document(answerable, ingest)
    parts.redis.set(key, kept)

    assert_problem(rate(client, answer_id), 404, "ask again")
    assert log(client, rating="any") == []


def test_an_answer_whose_document_was_deleted_takes_no_feedback(client: Client, answerable: str, parts: Parts):
    """As long as Redis, which was away at the deletion, has it."""
    answer_id = ask(client)
    key = f"ragkv:recent:{parts.default_collection.tenant_id}:{answer_id}"
    kept = parts.redis.get(key)
    client.delete(f"/v1/documents/{answerable}")
    parts.redis.set(key, kept)

    assert_problem(rate(client, answer_id), 404, "ask again")
    assert log(client, rating="any") == []


def test_feedback_that_was_given_before_a_document_was_deleted_can_be_changed(client: Client, answerable: str):
    answer_id = ask(client)
    rate(client, answer_id)
    client.delete(f"/v1/documents/{answerable}")

    assert rate(client, answer_id, "down").json()["rating"] == "down"


def test_feedback_outlives_the_record_of_its_question(client: Client, answerable: str, parts: Parts):
    rated, other = ask(client), ask(client)
    rate(client, rated)
    with parts.database.writing() as session:
        session.connection().exec_driver_sql("UPDATE questions SET created_at = '2020-01-01 00:00:00'")

    assert prune(90, parts.database).questions == 2
    assert [one["id"] for one in log(client)] == [rated]
    assert len(evaluation(client)) == 1
    assert other != rated


def test_the_command_writes_the_same_set(
    client: Client, answerable: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAGKV_DATA_DIR", str(parts.settings.data_dir))
    assert CliRunner().invoke(export, []).exception.args[0].startswith("default: no question")
    rate(client, ask(client))
    ran = CliRunner().invoke(export, ["--collection", "default"], catch_exceptions=False)

    assert (ran.stdout, ran.stderr) == (
        client.get("/v1/questions/evaluation").text,
        "1 questions written, 0 left out\n",
    )


def test_a_command_without_a_service_says_nothing_of_redis(parts: Parts, caplog: pytest.LogCaptureFixture):
    assert not is_there(parts.redis, parts.settings)
    assert caplog.records == []


def test_answers_of_a_command_beside_a_service_take_feedback(parts: Parts, redis_server: EmbeddedRedis):
    assert is_there(parts.redis, parts.settings)
