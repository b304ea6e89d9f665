"""The writer over the API: what may be used, what is in use, and for whom."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ingest.prefixed import load_model
from ingest.progress import Interrupted, ignore
from ingest.writer.adapter import Adapter
from ingest.writer.division import LEAST_NEIGHBOURHOODS, NEIGHBOURS
from ingest.writer.job import MAX_ATTEMPTS, evaluate_asked
from ragkv.clock import utc_now
from ragkv.embedded_redis import EmbeddedRedis
from ragkv.errors import Unavailable
from ragkv.parts import Parts
from ragkv.writer import ADAPTER, CONFIG, Gate, read_card, write_card
from ragkv.writer_evaluation import Evaluation, read_evaluation, write_evaluation
from tests.issued_keys import issue_key_by_name
from tests.made_writers import GOOD, card
from tests.over_http import Client, assert_problem, client_of, upload

ENOUGH = 2 * LEAST_NEIGHBOURHOODS * NEIGHBOURS
"""Sentences, of which two are a chunk."""


@pytest.fixture
def trained(parts: Parts) -> Path:
    """A writer for the served model, trained and evaluated, where the service looks for it."""
    folder = parts.settings.writers_dir / "mine"
    folder.mkdir(parents=True)
    (folder / ADAPTER).write_bytes(b"weights")
    (folder / CONFIG).write_bytes(b"{}")
    write_card(folder, card(GOOD, parts.model_fingerprint))
    return folder


def test_the_embedded_models_writer_comes_with_ragkv_and_passed(client: Client):
    (embedded,) = (one for one in client.get("/v1/writer").json()["available"] if one["name"] == "embedded")

    assert embedded["objections"] == []


def test_a_writer_is_used_from_the_next_start_on_and_taken_out_again(client: Client, parts: Parts, trained: Path):
    before = client.get("/v1/writer").json()
    used = client.put("/v1/writer", json={"name": "mine"}).json()
    stopped = client.delete("/v1/writer").json()

    assert (before["in_use"], before["restart_needed"]) == (None, False)
    assert [one["objections"] for one in before["available"] if one["name"] == "mine"] == [[]]
    assert (used["in_use"]["samples"], used["restart_needed"]) == (9, True)
    assert (stopped["in_use"], stopped["restart_needed"]) == (None, False)


@pytest.mark.parametrize("gate", [None, msgspec.structs.replace(GOOD, nll=9.9)])
def test_one_that_did_not_pass_says_why_and_stays_off(client: Client, parts: Parts, trained: Path, gate: Gate | None):
    write_card(trained, msgspec.structs.replace(read_card(trained), gate=gate))

    assert_problem(client.put("/v1/writer", json={"name": "mine"}), 422, "not put into use")
    assert client.get("/v1/writer").json()["in_use"] is None


def test_a_writer_of_a_model_served_before_stays_off(
    parts: Parts, redis_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
):
    folder = parts.settings.writer_dir
    folder.mkdir(parents=True)
    (folder / CONFIG).write_bytes(b"{}")
    write_card(folder, card(GOOD, "another model's fingerprint"))

    assert parts.writer_fingerprint == ""
    assert "stays off" in caplog.text
    with client_of(parts) as client:
        shown = client.get("/v1/writer").json()
    assert (shown["in_use"], shown["restart_needed"]) == (None, False)


def test_kv_is_never_named_after_a_writer_that_is_no_longer_there(parts: Parts):
    """One was put into use between a worker's start and its first document."""
    folder = parts.settings.writer_dir
    folder.mkdir(parents=True)
    (folder / CONFIG).write_bytes(b"{}")
    assert parts.writer_fingerprint

    (folder / CONFIG).write_bytes(b"{ }")

    with pytest.raises(Unavailable, match="restart the workers"):
        IngestParts(parts).load_models()


def test_a_name_that_is_none_is_not_found(client: Client, trained: Path, subtests: pytest.Subtests):
    for name in ["other", "../writers/mine", ""]:
        with subtests.test(name=name):
            assert_problem(client.put("/v1/writer", json={"name": name}), 404, "no writer")


def test_a_damaged_card_is_left_out(client: Client, trained: Path):
    (trained / "card.json").write_bytes(b"{")

    assert "mine" not in [one["name"] for one in client.get("/v1/writer").json()["available"]]


def test_it_serves_all_tenants_so_another_ones_admin_may_not_see_it(client: Client, parts: Parts, trained: Path):
    key = issue_key_by_name("another", "x", ["admin"], parts.database).key
    theirs = {"Authorization": f"Bearer {key}"}

    assert client.get("/v1/writer", headers=theirs).status_code == 403
    assert client.put("/v1/writer", json={"name": "mine"}, headers=theirs).status_code == 403
    assert client.delete("/v1/writer", headers=theirs).status_code == 403
    assert client.post("/v1/writer/evaluation", json={"name": "mine"}, headers=theirs).status_code == 403


def evaluation_of(name: str, client: Client) -> dict[str, Any] | None:
    (found,) = (one for one in client.get("/v1/writer").json()["available"] if one["name"] == name)
    evaluation: dict[str, Any] | None = found["evaluation"]
    return evaluation


class TestEvaluation:
    """Asked for over the API, made by a worker."""

    def test_it_is_queued_once(self, client: Client, parts: Parts):
        before = parts.queue.depth()
        asked = [client.post("/v1/writer/evaluation", json={"name": "embedded"}) for _ in range(2)]

        assert [response.status_code for response in asked] == [202, 202]
        assert evaluation_of("embedded", client)["state"] == "queued"
        assert parts.queue.depth() == before + 1

    def test_what_there_is_not_is_said(self, client: Client, subtests: pytest.Subtests):
        for body, status in [
            ({"name": "none"}, 404),
            ({"name": "../x"}, 404),
            ({"name": "embedded", "collection": "none"}, 404),
            ({}, 400),
        ]:
            with subtests.test(body=body):
                assert client.post("/v1/writer/evaluation", json=body).status_code == status
                assert evaluation_of("embedded", client) is None

    def test_a_writer_of_another_model_is_refused(self, client: Client, trained: Path):
        write_card(trained, card(GOOD, "another"))

        assert_problem(client.post("/v1/writer/evaluation", json={"name": "mine"}), 422, "not for the served model")

    def test_too_little_text_is_the_reason_why_it_failed(self, client: Client, parts: Parts):
        client.post("/v1/writer/evaluation", json={"name": "embedded"})

        evaluate_asked("embedded", parts, ignore)

        failed = evaluation_of("embedded", client)
        assert failed["state"] == "failed"
        assert "give more documents" in failed["error"]

    def test_one_that_ends_its_worker_each_time_is_given_up(self, client: Client, parts: Parts):
        client.post("/v1/writer/evaluation", json={"name": "embedded"})
        folder = parts.settings.evaluations_dir
        write_evaluation("embedded", replace(read_evaluation("embedded", folder), attempts=MAX_ATTEMPTS), folder)

        evaluate_asked("embedded", parts, ignore)

        assert "the worker ended" in evaluation_of("embedded", client)["error"]

    def test_figures_and_progress_of_one_that_was_interrupted_first(
        self, client: Client, parts: Parts, ingest: IngestParts, trained: Path
    ):
        """A worker that stops leaves it as it was asked for; the next one makes it."""
        Adapter.new(load_model(parts.model_folder, torch.float32)).save(trained)
        sentences = (f"Number {n} was built by Ada Lovelace in the town of Bath in {1700 + n}." for n in range(ENOUGH))
        document = upload(client, "\n\n".join(sentences).encode(), "many.md").json()["id"]
        ingest_document(document, ingest)
        folder = parts.settings.evaluations_dir
        write_evaluation("mine", Evaluation(collection="default", contexts=2, asked_at=utc_now()), folder)
        seen = []

        def stopped(stage: str, done: int, total: int) -> None:
            raise Interrupted

        def told(stage: str, done: int, total: int) -> None:
            seen.append((done, total, evaluation_of("mine", client)["state"]))

        with pytest.raises(Interrupted):
            evaluate_asked("mine", parts, stopped)
        interrupted = evaluation_of("mine", client)
        evaluate_asked("mine", parts, told)

        done = evaluation_of("mine", client)
        assert (interrupted["state"], interrupted["attempts"]) == ("queued", 0)
        assert seen == [(1, 2, "running"), (2, 2, "running")]
        assert (done["state"], done["attempts"], done["gate"]["contexts"]) == ("done", 1, 2)
        assert done["gate"]["kl"] == pytest.approx(done["gate"]["plain_kl"], rel=0.05)  # a new writer changes nothing
        assert read_card(trained).gate.contexts == 2
