"""Replaced documents whose new file is not read, or cannot be: the earlier text answers, says so, and keeps its
file."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from qdrant_client import QdrantClient
from sqlalchemy import select, update

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.service.backup.backup import backup
from ragkv.service.backup.restore import restore
from ragkv.service.base.tables import DocumentRow
from ragkv.service.checks.check import WHILE_STOPPED
from ragkv.service.checks.cleaning import clean
from ragkv.service.checks.fsck import examine, repair
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support.made_files import pdf
from tests.support.over_http import ADA, Client, upload

OLD = pdf([["Ada Lovelace wrote the fee list: 444 crowns."]])
NEW = pdf([["Ada Lovelace wrote the fee list: 555 crowns."]])
DAMAGED = b"%PDF-1.7 damaged"
OTHER_DAMAGED = b"%PDF-1.7 damaged as well"
QUESTION = "What did Ada Lovelace write?"


@pytest.fixture(params=["migrated_sqlite_url", "migrated_postgres_url"], ids=["sqlite_url", "postgres_url"])
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """On each kind of database."""
    return msgspec.structs.replace(settings, database_url=request.getfixturevalue(request.param))


@pytest.fixture
def document_id(client: Client, ingest: IngestParts) -> str:
    document_id = str(upload(client, OLD, "fees-2026.pdf").json()["id"])
    ingest_document(document_id, ingest)
    return document_id


def put(client: httpx.Client, document_id: str, body: bytes, name: str = "fees-2027.pdf") -> dict[str, Any]:
    response = client.put(f"/v1/documents/{document_id}", files={"file": (name, body)})
    assert response.status_code == 202, response.text
    return response.json()


def document(client: httpx.Client, document_id: str) -> dict[str, Any]:
    return client.get(f"/v1/documents/{document_id}").json()


def passages(client: httpx.Client) -> list[dict[str, Any]]:
    return client.post("/v1/search", json={"question": QUESTION}).json()["passages"]


def original(client: httpx.Client, document_id: str) -> bytes:
    return client.get(f"/v1/documents/{document_id}/file").content


def stored(parts: Parts) -> set[bytes]:
    """The files on the disk."""
    return {path.read_bytes() for path in parts.settings.files_dir.rglob("*") if path.is_file()}


def sweep(parts: Parts) -> None:
    """Remove the files that no row names, however young."""
    day_ago = time.time() - 24 * 3600
    for path in parts.settings.files_dir.rglob("*"):
        os.utime(path, (day_ago, day_ago))
    clean(parts.database, parts.removal, parts.server_index)


def outdated_everywhere(client: httpx.Client, document_id: str) -> set[str]:
    """The reasons that the document's views, passages and citations give."""
    answer = client.post("/v1/ask", json={"question": QUESTION}).json()
    (citation, *_) = answer["citations"]
    (listed,) = client.get("/v1/documents").json()["items"]
    around = client.get(citation["page_text"]).json()
    found = [
        document(client, document_id),
        listed,
        around,
        *passages(client),
        *answer["passages"],
        *answer["citations"],
    ]
    model = client.get("/v1/models").json()["data"][0]["id"]
    chat = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
    asked = {"model": model, "input": QUESTION, "include": ["file_search_call.results"]}
    store = document(client, document_id)["collection_id"]
    found += client.post(f"/v1/vector_stores/{store}/search", json={"query": QUESTION}).json()["data"]
    found += client.get(f"/v1/vector_stores/{store}/files").json()["data"]
    found += client.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["citations"]
    call, message = client.post("/v1/responses", json=asked).json()["output"]
    found += [*call["results"], *message["content"][0]["annotations"]]
    return {one["outdated"] for one in found}


def test_a_file_that_is_replaced_while_a_worker_stores_its_text_stays_as_long_as_the_text_answers(
    client: Client, parts: Parts
):
    document_id = upload(client, OLD, "fees-2026.pdf").json()["id"]
    with ThreadPoolExecutor() as replacing:
        with parts.database.writing() as worker:
            worker.execute(update(DocumentRow).where(DocumentRow.id == document_id).values(num_chunks=1))
            response = replacing.submit(put, client, document_id, DAMAGED)
            with pytest.raises(TimeoutError):
                response.result(timeout=0.5)
        response.result(timeout=30)

    assert "has not been read yet" in document(client, document_id)["outdated"]
    assert stored(parts) == {OLD, DAMAGED}


def test_a_document_whose_new_file_cannot_be_read_says_everywhere_that_its_text_is_outdated(
    client: Client, ingest: IngestParts, document_id: str
):
    assert outdated_everywhere(client, document_id) == {None}
    put(client, document_id, DAMAGED)
    waiting = 'the text is from the earlier file "fees-2026.pdf": the new file has not been read yet'
    assert outdated_everywhere(client, document_id) == {waiting}

    ingest_document(document_id, ingest)
    view = document(client, document_id)
    reason = f'the text is from the earlier file "fees-2026.pdf": the new file could not be read: {view["error"]}'
    assert view["status"] == "failed" and view["error"]
    assert outdated_everywhere(client, document_id) == {reason}
    for page in (f"/admin/documents/{document_id}", f"/admin/collections/{view['collection_id']}"):
        assert "Outdated:" in client.get(page).text
        assert "application/pdf" not in client.get(page).text

    put(client, document_id, NEW)
    ingest_document(document_id, ingest)
    assert outdated_everywhere(client, document_id) == {None}
    assert "555" in passages(client)[0]["text"]


def test_answers_that_were_kept_while_the_new_file_was_read_do_not_outlive_its_failure(
    client: Client, ingest: IngestParts, document_id: str
):
    client.patch("/v1/collections/default", json={"answer_cache": {"enabled": True}})
    put(client, document_id, DAMAGED)
    for _ in range(2):
        kept = client.post("/v1/ask", json={"question": QUESTION}).json()
    assert kept["cached_answer"]

    ingest_document(document_id, ingest)
    answer = client.post("/v1/ask", json={"question": QUESTION}).json()
    assert "could not be read" in answer["citations"][0]["outdated"]


def test_the_earlier_file_is_downloaded_and_shown_until_the_new_one_is_read(
    client: Client, ingest: IngestParts, parts: Parts, document_id: str
):
    def shows_the_words() -> bool:
        (citation, *_) = client.post("/v1/ask", json={"question": QUESTION}).json()["citations"]
        boxes = client.get(citation["page_boxes"])
        return boxes.status_code == 200 and boxes.json()["problem"] is None

    put(client, document_id, DAMAGED)
    assert original(client, document_id) == OLD and shows_the_words()
    ingest_document(document_id, ingest)
    sweep(parts)
    response = client.get(f"/v1/documents/{document_id}/file")
    assert response.content == OLD and "fees-2026.pdf" in response.headers["content-disposition"]
    assert shows_the_words()
    assert client.get(f"/v1/documents/{document_id}/pages/1").status_code == 200

    put(client, document_id, NEW)
    assert original(client, document_id) == OLD
    ingest_document(document_id, ingest)
    assert original(client, document_id) == NEW and shows_the_words()
    assert stored(parts) == {NEW}


def test_a_further_file_takes_the_place_of_the_one_that_was_not_read(
    client: Client, ingest: IngestParts, parts: Parts, document_id: str
):
    put(client, document_id, DAMAGED)
    ingest_document(document_id, ingest)
    put(client, document_id, OTHER_DAMAGED)
    assert stored(parts) == {OLD, OTHER_DAMAGED}
    assert original(client, document_id) == OLD


def test_a_document_that_gets_its_earlier_file_again_is_not_outdated(
    client: Client, ingest: IngestParts, parts: Parts, document_id: str
):
    put(client, document_id, DAMAGED)
    ingest_document(document_id, ingest)
    assert put(client, document_id, OLD, "fees.pdf")["outdated"] is None
    assert stored(parts) == {OLD}
    ingest_document(document_id, ingest)
    assert document(client, document_id)["status"] == "ready"
    assert original(client, document_id) == OLD and stored(parts) == {OLD}


def test_a_document_that_was_never_read_has_no_earlier_file(client: Client, ingest: IngestParts, parts: Parts):
    document_id = str(upload(client, DAMAGED, "a.pdf").json()["id"])
    ingest_document(document_id, ingest)
    assert put(client, document_id, OTHER_DAMAGED)["outdated"] is None
    assert stored(parts) == {OTHER_DAMAGED} and original(client, document_id) == OTHER_DAMAGED


def test_a_deletion_removes_both_files(client: Client, ingest: IngestParts, parts: Parts, document_id: str):
    put(client, document_id, DAMAGED)
    ingest_document(document_id, ingest)
    assert stored(parts) == {OLD, DAMAGED}
    assert client.delete(f"/v1/documents/{document_id}").status_code == 204
    assert stored(parts) == set()


def test_the_earlier_file_stays_while_another_document_has_it(
    client: Client, ingest: IngestParts, parts: Parts, document_id: str
):
    put(client, document_id, DAMAGED)
    twin = upload(client, OLD, "twin.pdf").json()["id"]
    assert twin != document_id
    client.delete(f"/v1/documents/{document_id}")
    assert stored(parts) == {OLD} and original(client, twin) == OLD


def test_both_files_count_as_the_tenants_bytes(client: Client, parts: Parts, document_id: str):
    parts.settings = msgspec.structs.replace(parts.settings, max_tenant_bytes=len(OLD) + len(NEW) - 1)
    refused = client.put(f"/v1/documents/{document_id}", files={"file": ("b.pdf", NEW)})
    assert refused.status_code == 413, refused.text
    assert document(client, document_id)["outdated"] is None and stored(parts) == {OLD}


@pytest.mark.parametrize("with_server", [False, True], ids=["in memory", "Qdrant"])
def test_outdated_documents_are_left_out_of_answers_if_the_settings_say_so(
    client: Client, ingest: IngestParts, parts: Parts, with_server: bool
):
    strict = Parts(msgspec.structs.replace(parts.settings, answer_outdated=False))
    lend_models(strict, ingest)
    if with_server:
        parts.server_index = strict.server_index = QdrantIndex(QdrantClient(location=":memory:"), "in this process")
        parts.server_index.ensure(parts.encoder.dim)
    document_id, other = (
        str(upload(client, body, name).json()["id"]) for body, name in ((OLD, "a.pdf"), (ADA, "a.md"))
    )
    for one in (document_id, other):
        ingest_document(one, ingest)

    def found(document_ids: frozenset[str] | None = None) -> set[str]:
        ref = parts.default_collection
        search = strict.retriever.search(ref.tenant_id, ref.collection_id, QUESTION, 5, 2, document_ids)
        return {passage.chunk.document_id for passage in search}

    assert found() == {document_id, other}
    put(client, document_id, DAMAGED)
    assert found() == {other}
    ingest_document(document_id, ingest)
    assert found() == {other}
    assert found(frozenset([document_id])) == set()
    assert {passage["document_id"] for passage in passages(client)} == {document_id, other}
    put(client, document_id, NEW)
    ingest_document(document_id, ingest)
    assert found() == {document_id, other}
    strict.close()


def test_a_backup_has_both_files_and_the_restored_document_is_as_outdated(
    client: Client, ingest: IngestParts, parts: Parts, document_id: str, tmp_path: Path, settings: Settings
):
    put(client, document_id, DAMAGED)
    ingest_document(document_id, ingest)
    assert backup(tmp_path / "backup", parts.database, parts.files).num_files == 2
    elsewhere = {"data_dir": tmp_path / "target", "database_url": f"sqlite:///{tmp_path / 'target.sqlite3'}"}
    target = Parts(msgspec.structs.replace(settings, **elsewhere))
    lend_models(target, ingest)
    restore(tmp_path / "backup", target)
    with target.database.reading() as session:
        row = session.scalars(select(DocumentRow)).one()
    assert (row.is_replaced, row.earlier_name) == (True, "fees-2026.pdf")
    assert target.files.find(row.tenant_id, row.earlier_sha256 or "").read_bytes() == OLD
    assert target.files.find(row.tenant_id, row.sha256).read_bytes() == DAMAGED
    target.close()


def test_an_earlier_file_that_is_lost_is_reported_and_its_text_goes_on_answering(
    client: Client, ingest: IngestParts, parts: Parts, document_id: str
):
    def findings() -> dict[str, int]:
        return {finding.check: len(finding.found) for finding in examine(WHILE_STOPPED, parts) if finding.found}

    put(client, document_id, DAMAGED)
    ingest_document(document_id, ingest)
    assert findings() == {}
    (path,) = (path for path in parts.settings.files_dir.rglob("*") if path.is_file() and path.read_bytes() == OLD)
    path.unlink()
    assert findings() == {"outdated_without_file": 1}

    assert any([finding.mended for finding in repair(WHILE_STOPPED, parts)])  # noqa: C419 - all are to be mended
    assert findings() == {}
    assert client.get(f"/v1/documents/{document_id}/file").status_code == 404
    assert "could not be read" in document(client, document_id)["outdated"]
    assert "444" in passages(client)[0]["text"]
