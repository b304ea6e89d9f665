"""`ragkv kv`: what it shows is what there is, and what it does is done."""

import io

import pytest
from click.testing import CliRunner, Result

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.cli.kv import kv
from ragkv.errors import NotFound
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.status import Status
from ragkv.service.collections.collections import make_collection
from ragkv.service.documents.documents import document_view, store_document
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.usage import held_kv
from ragkv.service.parts import Parts
from tests.support.over_http import ADA

NOBODY = "0" * 32


@pytest.fixture
def document(parts: Parts, ingest: IngestParts, redis_server: EmbeddedRedis) -> str:

    document_id = store_document(parts.default_collection, "ada.md", io.BytesIO(ADA), parts.intake).document_id
    ingest_document(document_id, ingest)
    return document_id


def run(parts: Parts, *arguments: str) -> Result:
    settings = parts.settings
    environment = {
        "RAGKV_DATA_DIR": str(settings.data_dir),
        "RAGKV_DATABASE_URL": settings.database_url,
        "RAGKV_REDIS_URL": settings.redis_url,
        "RAGKV_MODEL": settings.model,
        "RAGKV_CHUNK_TOKENS": str(settings.chunk_tokens),
    }
    return CliRunner().invoke(kv, arguments, env=environment)


def said(parts: Parts, *arguments: str) -> str:
    ran = run(parts, *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_what_there_is_is_shown_by_tier_and_by_collection(parts: Parts, document: str):
    held = held_kv(KVOwner(parts.default_collection.tenant_id, document_id=document), parts.database)

    assert f"{held.files:,} files, {held.tokens:,} tokens" in said(parts, "stats")
    [line] = [line for line in said(parts, "ls").splitlines() if "default" in line]
    assert line.split()[2:4] == [f"{held.files:,}", f"{held.tokens:,}"]


def test_all_collections_are_listed_however_many_there_are(parts: Parts):
    for number in range(MAX_PAGE):
        make_collection(parts.default_collection.tenant_id, f"user {number}", parts.database)

    assert len([line for line in said(parts, "ls").splitlines() if "user " in line]) == MAX_PAGE


def test_a_collection_is_pinned_and_unpinned(parts: Parts, document: str):
    assert "pinned" in said(parts, "pin", "--collection", "default")
    assert "yes" in said(parts, "ls")
    assert "unpinned" in said(parts, "unpin", "--collection", "default")
    assert "yes" not in said(parts, "ls")


def test_a_document_is_evicted_and_rebuilt(parts: Parts, document: str, ingest: IngestParts):
    tenant_id = parts.default_collection.tenant_id

    said(parts, "evict", "--document", document, "--yes")
    evicted = document_view(tenant_id, document, parts.database).status
    said(parts, "rebuild")
    ingest_document(document, ingest)

    assert (evicted, document_view(tenant_id, document, parts.database).status) == (Status.SEARCHABLE, Status.READY)


def test_nothing_is_evicted_unasked(parts: Parts, document: str):
    ran = CliRunner().invoke(kv, ["evict"], input="n\n")

    assert ran.exit_code == 1
    assert document_view(parts.default_collection.tenant_id, document, parts.database).status is Status.READY


def test_damage_is_found_told_and_left_to_be_rebuilt(parts: Parts, document: str):
    assert "0 damaged, 0 missing" in said(parts, "verify")
    for key in parts.kv_store.keys():  # noqa: SIM118 - it is no dict
        path = parts.kv_store.path(key)
        path.write_bytes(path.read_bytes()[:-1])

    ran = run(parts, "verify")

    assert ran.exit_code == 1
    assert f"to be rebuilt: document {document}" in ran.output
    assert "0 damaged" not in ran.output


@pytest.mark.parametrize(
    "arguments",
    [("pin", "--collection", "none"), ("verify", "--document", NOBODY), ("stats", "--tenant", "none")],
)
def test_what_there_is_not_is_said(parts: Parts, document: str, arguments: tuple[str, ...]):
    assert isinstance(run(parts, *arguments).exception, NotFound)


@pytest.mark.parametrize("arguments", [("pin",), ("verify", "--document", "x", "--collection", "y")])
def test_what_is_not_clear_is_refused(parts: Parts, arguments: tuple[str, ...]):
    ran = run(parts, *arguments)

    assert ran.exit_code == 2
    assert "--collection or a --document" in ran.output
