"""The writer over the API: what may be used, what is in use, and for whom."""

from pathlib import Path

import msgspec
import pytest

from ingest.parts import IngestParts
from ragkv.errors import Unavailable
from ragkv.models import ADAPTER, ADAPTER_CONFIG
from ragkv.prefill.writer import Gate, read_card, write_card
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.parts import Parts
from tests.support.issued_keys import issue_key_by_name
from tests.support.made_writers import GOOD, card
from tests.support.over_http import Client, assert_problem, client_of


@pytest.fixture
def trained(parts: Parts) -> Path:
    """A writer for the served model, trained and evaluated, where the service looks for it."""
    folder = parts.settings.writers_dir / "mine"
    folder.mkdir(parents=True)
    (folder / ADAPTER).write_bytes(b"weights")
    (folder / ADAPTER_CONFIG).write_bytes(b"{}")
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
    (folder / ADAPTER_CONFIG).write_bytes(b"{}")
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
    (folder / ADAPTER_CONFIG).write_bytes(b"{}")
    assert parts.writer_fingerprint

    (folder / ADAPTER_CONFIG).write_bytes(b"{ }")

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
