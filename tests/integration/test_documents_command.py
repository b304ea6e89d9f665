"""`ragkv documents`, as a person uses it beside a running service."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.cli import main
from ragkv.service.parts import Parts
from tests.support.over_http import ADA, Client, upload

BABBAGE = b"# Charles Babbage\n\nCharles Babbage designed the difference engine in London.\n"


@pytest.fixture
def run(client: Client, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, over the service's data."""
    monkeypatch.setenv("RAGKV_DATA_DIR", str(parts.settings.data_dir))
    monkeypatch.setenv("RAGKV_DATABASE_URL", parts.settings.database)

    def run(*arguments: str, answer: str = "") -> Result:
        return CliRunner().invoke(main, ["documents", *arguments], input=answer)

    return run


def test_documents_are_listed_by_pages_collection_name_and_status(client: Client, run: Any):
    client.post("/v1/collections", json={"name": "papers"})
    mine = upload(client, BABBAGE, "babbage [1].md").json()["id"]
    other = upload(client, ADA, "ada.md", data={"collection": "papers"}).json()["id"]
    assert run("list").stdout.splitlines() == [f"{other}  accepted    ada.md", f"{mine}  accepted    babbage [1].md"]
    assert run("list", "--collection", "papers").stdout.split()[0] == other
    assert run("list", "--name", "BABB").stdout.split()[0] == mine
    assert run("list", "--status", "ready").stdout == ""
    first = run("list", "--limit", "1")
    cursor = first.stderr.strip().removeprefix("more: --cursor ")
    assert run("list", "--limit", "1", "--cursor", cursor).stdout.split()[0] == mine


def test_a_file_is_replaced_and_read_by_a_worker(
    client: Client, ingest: IngestParts, answerable: str, run: Any, tmp_path: Path
):
    file = tmp_path / "babbage.md"
    file.write_bytes(BABBAGE)
    replaced = run("replace", answerable, str(file))
    assert replaced.stdout == f"{answerable}: ada.md is replaced by babbage.md, which a worker will read\n"
    assert "the new file has not been read yet" in run("list").stdout
    ingest_document(answerable, ingest)
    assert client.get(f"/v1/documents/{answerable}/file").content == BABBAGE
    assert "has the same bytes" in run("replace", answerable, str(file)).stdout
    (event, *_) = client.get("/v1/audit", params={"resource": answerable}).json()["items"]
    assert (event["action"], event["client"]) == ("Replace a document's file", "command line")


def test_a_document_is_deleted_once_that_is_confirmed(client: Client, answerable: str, run: Any):
    assert run("delete", answerable, answer="n\n").exit_code == 1
    assert client.get(f"/v1/documents/{answerable}").status_code == 200
    assert "ada.md is deleted" in run("delete", answerable, answer="y\n").stdout
    assert client.get(f"/v1/documents/{answerable}").status_code == 404
    again = upload(client).json()["id"]
    assert run("delete", again, "--yes").stdout == "ada.md is deleted\n"


def test_mistakes_are_told_in_one_line(run: Any, answerable: str, tmp_path: Path):
    empty = tmp_path / "empty.md"
    empty.touch()
    for arguments, reason in (
        (("delete", "0" * 32, "--yes"), "there is no document"),
        (("delete", "../x", "--yes"), "there is no document"),
        (("replace", "0" * 32, str(empty)), "there is no document"),
        (("replace", answerable, str(empty)), "the file is empty"),
        (("list", "--collection", "nowhere"), "nowhere"),
        (("list", "--tenant", "nobody"), "nobody"),
        (("list", "--cursor", "x"), "cursor"),
    ):
        refused = run(*arguments)
        assert refused.exit_code == 1, refused.output
        assert refused.stderr.startswith("ragkv: ") and reason in refused.stderr and refused.stderr.count("\n") == 1
    missing = run("replace", answerable, str(tmp_path / "gone.md"))
    assert missing.exit_code == 2 and "does not exist" in missing.stderr


def test_the_reason_of_a_failure_names_the_document_once(client: Client, ingest: IngestParts, run: Any):
    program = upload(client, b"\x7fELF\x02\x01\x01\x00", "true").json()["id"]
    ingest_document(program, ingest)
    assert run("list").stdout.startswith(f"{program}  failed      true: it is a program")
