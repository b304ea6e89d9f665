"""`ragkv bench tiers` over the service's own log of questions."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import select

from bench.tiers.command import TiersReport, tiers
from bench.tiers.workload import Asked, Log, exported_log, logged, retrieved
from ragkv.errors import NotFound, Rejected
from ragkv.ids import utc_now
from ragkv.service.base.tables import ChunkRow
from ragkv.service.parts import Parts
from tests.integration.test_feedback import ask, rate
from tests.support.over_http import Client

QUESTIONS = ("Who wrote the first program?", "For which engine?", "Who wrote the first program?")


def nothing() -> None:
    pass


def test_the_log_and_its_export_give_the_same_trace(
    client: Client, answerable: str, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In the order in which they were asked, with the chunks that they find and their tokens."""
    for question in QUESTIONS:
        ask(client, question)
    export = tmp_path / "log.jsonl"
    export.write_bytes(client.get("/v1/questions/export").content)

    of_database, of_file = logged("default", "default", parts.database), exported_log(export)
    assert (
        [one.question for one in of_database.questions] == [one.question for one in of_file.questions] == [*QUESTIONS]
    )
    workload, without = retrieved(of_database, "default", parts, nothing)
    assert retrieved(of_file, "default", parts, nothing)[0].requests == workload.requests
    assert without == 0
    with parts.database.reading() as session:
        assert set(workload.tokens) == set(session.scalars(select(ChunkRow.id)))
    assert [request.chunks for request in workload.requests] == [tuple(workload.tokens)] * 3

    for name, value in (
        ("DATA_DIR", parts.settings.data_dir), ("MODEL", parts.settings.model), ("CHUNK_TOKENS", parts.settings.chunk_tokens),
    ):  # fmt: skip
        monkeypatch.setenv(f"RAGKV_{name}", str(value))
    found = tmp_path / "found.json"
    given = ["--collection", "default", "--questions", str(export), "--budget", "1", "--json", str(found)]
    done = CliRunner().invoke(tiers, ["--model", "Llama-3.1-8B", *given], catch_exceptions=False)

    assert done.exit_code == 0, done.output
    assert "default: 3 questions since" in done.stderr
    reports = msgspec.json.decode(found.read_bytes(), type=TiersReport).workloads
    assert [(one.workload, one.requests, one.chunks) for one in reports] == [
        ("questions(log)", 3, len(workload.tokens)), ("questions(default)", 3, len(workload.tokens)),
    ]  # fmt: skip


def test_questions_that_say_nothing_about_chunks_are_left_out_and_counted(
    client: Client, answerable: str, parts: Parts
):
    collection_id = parts.default_collection.collection_id
    rate(client, ask(client))
    with parts.database.writing() as session:
        session.connection().exec_driver_sql("DELETE FROM questions")
    log = logged("default", "default", parts.database)
    assert (log.questions, log.left_out) == ([], 1)

    gone = [Asked(question="Who?", asked_at=utc_now(), collection_id="0" * 32, mode="stitched")]
    here = [
        Asked(question="Who?", asked_at=utc_now() + timedelta(seconds=n), collection_id=collection_id, mode="full")
        for n in range(2)
    ]
    workload, without = retrieved(Log.of("both", iter(here[::-1] + gone)), "default", parts, nothing)
    assert (len(workload.requests), without) == (2, 1)
    assert workload.requests[0].moment < workload.requests[1].moment
    with pytest.raises(Rejected, match="1 of 2 questions find a passage, two are needed"):
        retrieved(Log.of("mostly gone", iter(gone + here[:1])), "default", parts, nothing)


def test_what_is_no_log_is_refused_with_the_reason(parts: Parts, tmp_path: Path):
    with pytest.raises(Rejected, match="0 of 0 questions"):
        retrieved(logged("default", "default", parts.database), "default", parts, nothing)
    with pytest.raises(NotFound):
        logged("default", "another", parts.database)
    (tmp_path / "log.jsonl").write_text('{"hash_ids": [1]}')
    with pytest.raises(Rejected, match=r"log\.jsonl, line 1: .*question"):
        exported_log(tmp_path / "log.jsonl")
