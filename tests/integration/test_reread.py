"""After a change of how documents are read, the old chunks answer until each document's re-read replaces them."""

import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from ingest.parts import IngestParts
from ingest.pipeline import MAX_ATTEMPTS, IngestOutcome, ingest_document, take_next, work_on
from ingest.turn import Interrupted
from ragkv.errors import NotFound
from ragkv.service.base import postgres
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.status import REREAD, Status
from ragkv.service.base.tables import ChunkRow, DocumentRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.checks.leftovers import missing_points
from ragkv.service.documents.changes import replace_document
from ragkv.service.documents.documents import DocumentView, document_view, store_document
from ragkv.service.kv_admin.usage import rebuild_document
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import client_of
from tests.support.qdrant_server import QdrantServer

LONG = b"# Engines\n\n" + b"".join(
    b"Engine number %d stood in hall %d of the works.\n\n" % (i, i % 7) for i in range(60)
)
QUESTION = "In which hall stood engine number 41?"


@pytest.fixture
def of_before(
    settings: Settings,
    migrated_url: str,
    redis_server: EmbeddedRedis,
    loaded: IngestParts,
    engine: EchoEngine,
) -> Iterator[Parts]:
    """The service before the change, over SQLite with the index in memory, and over PostgreSQL with Qdrant."""
    server = QdrantServer()
    server.start()
    qdrant_url = server.url if migrated_url.startswith("postgresql") else None
    parts = Parts(msgspec.structs.replace(settings, database_url=migrated_url, qdrant_url=qdrant_url), engine)
    lend_models(parts, loaded)
    ensure_collection(parts.database)
    yield parts
    parts.close()
    server.stop()


def other_chunk_size(of_before: Parts, loaded: IngestParts) -> Parts:
    return _after(of_before, loaded, chunk_tokens=128)


def other_terms(of_before: Parts, loaded: IngestParts) -> Parts:
    return _after(of_before, loaded, index_fingerprint="another")


def other_encoder(of_before: Parts, loaded: IngestParts) -> Parts:
    """The same encoder under another fingerprint: its vectors count as those of another."""
    return _after(of_before, loaded, encoder_fingerprint="another")


def _after(of_before: Parts, loaded: IngestParts, **changes: object) -> Parts:
    settings = {name: value for name, value in changes.items() if hasattr(of_before.settings, name)}
    parts = Parts(msgspec.structs.replace(of_before.settings, **settings), of_before.engine)
    lend_models(parts, loaded)
    vars(parts).update({name: value for name, value in changes.items() if name not in settings})
    return parts


@pytest.fixture(params=[other_chunk_size, other_terms, other_encoder])
def change(request: pytest.FixtureRequest) -> Callable[[Parts, IngestParts], Parts]:
    chosen: Callable[[Parts, IngestParts], Parts] = request.param
    return chosen


@pytest.fixture
def document_id(of_before: Parts, loaded: IngestParts) -> str:
    """A document that is ready."""
    document_id = store_document(
        of_before.default_collection, "engines.md", io.BytesIO(LONG), of_before.intake
    ).document_id
    assert ingest_document(document_id, over(of_before, loaded)) is IngestOutcome.READY
    return document_id


def over(parts: Parts, loaded: IngestParts) -> IngestParts:
    ingest = IngestParts(parts, engine=EchoEngine(parts.settings))
    ingest.parser = loaded.parser
    return ingest


def view(parts: Parts, document_id: str) -> DocumentView:
    return document_view(parts.default_collection.tenant_id, document_id, parts.database)


def found(parts: Parts, question: str = QUESTION) -> list[str]:
    place = parts.default_collection
    return [p.chunk.text for p in parts.retriever.search(place.tenant_id, place.collection_id, question, 3, 2)]


def row(parts: Parts, document_id: str) -> DocumentRow:
    with parts.database.reading() as session:
        return session.get_one(DocumentRow, document_id)


def kv_keys(parts: Parts) -> list[str | None]:
    with parts.database.reading() as session:
        return list(session.scalars(select(ChunkRow.kv_key).order_by(ChunkRow.ordinal)))


def test_a_service_whose_worker_has_not_come_yet_answers_from_what_was_read_before(
    of_before: Parts, loaded: IngestParts, document_id: str, change: Callable[[Parts, IngestParts], Parts]
) -> None:
    kept = kv_keys(of_before)
    after = change(of_before, loaded)
    assert after.refresh_outdated() == 1
    with client_of(after) as client:
        shown = client.get(f"/v1/documents/{document_id}").json()
        assert (shown["status"], shown["stage"], shown["error"]) == ("searchable", REREAD, None)
        answer = client.post("/v1/ask", json={"question": QUESTION}).json()
        assert any("Engine number 41 " in passage["text"] for passage in answer["passages"])
    assert kv_keys(after) == kept
    assert all(key is not None and after.kv_store.path(key).exists() for key in kept)
    after.close()


def test_a_start_may_take_longer_to_mark_documents_than_a_request_may_take(
    of_before: Parts, loaded: IngestParts, document_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be millions; here one is locked for as long."""
    if not of_before.settings.database.startswith("postgresql"):
        pytest.skip("SQLite has no limit")
    monkeypatch.setitem(postgres.LIMITS, "statement_timeout", "500ms")
    after = other_chunk_size(of_before, loaded)
    with ThreadPoolExecutor(1) as thread:
        with of_before.database.writing() as session:
            session.execute(select(DocumentRow).with_for_update())
            marked = thread.submit(after.refresh_outdated)
            time.sleep(1.5)
        assert marked.result() == 1
    after.close()


def test_the_re_read_replaces_it_and_search_finds_the_document_at_every_step(
    of_before: Parts, loaded: IngestParts, document_id: str, change: Callable[[Parts, IngestParts], Parts]
) -> None:
    after = change(of_before, loaded)
    assert after.refresh_outdated() == 1
    seen: list[tuple[Status, bool]] = []

    def look(stage: str, done: int, total: int) -> None:
        seen.append((view(after, document_id).status, any("Engine number 41 " in text for text in found(after))))

    lease = take_next(over(after, loaded))
    assert lease is not None
    assert work_on(lease, over(after, loaded), look) is IngestOutcome.READY
    assert set(seen) == {(Status.SEARCHABLE, True)}
    assert row(after, document_id).index_fingerprint == after.index_fingerprint
    assert any("Engine number 41 " in text for text in found(after))
    assert after.refresh_outdated() == 0
    if after.server_index is not None:
        assert missing_points(after.database, after.server_index) == []
    after.close()


def test_a_worker_that_comes_late_with_the_points_of_the_file_before_leaves_those_of_the_new_one(
    of_before: Parts, loaded: IngestParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points are named by the place of their chunk in the document: those of both files have the same names."""
    if of_before.server_index is None:
        pytest.skip("the index in memory is made from the database")
    place = of_before.default_collection
    document_id = store_document(place, "engines.md", io.BytesIO(LONG), of_before.intake).document_id
    write = of_before.server_index.replace

    def replaced_meanwhile(*arguments: Any) -> None:
        monkeypatch.undo()
        replace_document(
            place.tenant_id,
            document_id,
            "mills.md",
            io.BytesIO(b"The mill burnt down."),
            of_before.intake,
            of_before.removal,
        )
        assert ingest_document(document_id, over(of_before, loaded)) is IngestOutcome.READY
        write(*arguments)

    monkeypatch.setattr(of_before.server_index, "replace", replaced_meanwhile)
    assert ingest_document(document_id, over(of_before, loaded)) is IngestOutcome.SKIPPED

    assert view(of_before, document_id).status is Status.READY
    assert missing_points(of_before.database, of_before.server_index) == []
    assert found(of_before, "What burnt down?") == ["The mill burnt down."]


def test_a_re_read_that_was_stopped_goes_on_and_is_not_begun_anew_by_another_start(
    of_before: Parts, loaded: IngestParts, document_id: str
) -> None:
    after = other_chunk_size(of_before, loaded)
    after.refresh_outdated()

    def stop(stage: str, done: int, total: int) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        ingest_document(document_id, over(after, loaded), stop)
    assert after.refresh_outdated() == 0
    assert (view(after, document_id).status, found(after) != []) == (Status.SEARCHABLE, True)
    assert ingest_document(document_id, over(after, loaded)) is IngestOutcome.READY
    after.close()


def test_if_the_re_read_fails_the_old_chunks_stay_and_the_reason_is_shown_until_it_is_asked_for_again(
    of_before: Parts, loaded: IngestParts, document_id: str, change: Callable[[Parts, IngestParts], Parts]
) -> None:
    before = row(of_before, document_id)
    path = of_before.files.path(before.tenant_id, before.sha256)
    body = path.read_bytes()
    path.unlink()
    after = change(of_before, loaded)
    after.refresh_outdated()

    for _ in range(MAX_ATTEMPTS - 1):
        with pytest.raises(NotFound):
            ingest_document(document_id, over(after, loaded))
    assert ingest_document(document_id, over(after, loaded)) is IngestOutcome.FAILED
    shown = view(after, document_id)
    assert (shown.status, shown.chunks) == (Status.SEARCHABLE, before.num_chunks)
    assert "upload it again" in (shown.error or "")
    assert any("Engine number 41 " in text for text in found(after))
    assert ingest_document(document_id, over(after, loaded)) is IngestOutcome.SKIPPED

    path.write_bytes(body)
    rebuild_document(before.tenant_id, document_id, after.database, after.queue)
    assert ingest_document(document_id, over(after, loaded)) is IngestOutcome.READY
    assert view(after, document_id).error is None
    after.close()


def test_vectors_of_another_encoder_are_compared_with_no_question(
    of_before: Parts, loaded: IngestParts, document_id: str
) -> None:
    """The document is found by its words alone, then by its meaning again."""
    after = other_encoder(of_before, loaded)
    after.refresh_outdated()
    assert found(of_before, "machinery") != []
    assert found(after, "machinery") == []
    assert any("Engine number 41 " in text for text in found(after))

    ingest_document(document_id, over(after, loaded))
    assert found(after, "machinery") != []
    after.close()


def test_chunks_in_the_ids_of_another_tokenizer_are_encoded_anew(
    of_before: Parts, loaded: IngestParts, document_id: str
) -> None:
    with of_before.database.writing() as session:
        session.execute(update(ChunkRow).values(token_ids=b"\xff\xff\xff\xff"))
    after = other_chunk_size(of_before, loaded)
    place = after.default_collection
    passages = after.retriever.search(place.tenant_id, place.collection_id, QUESTION, 3, 1)
    for chunk in (passage.chunk for passage in passages):
        assert chunk.token_ids == tuple(after.tokenizer.encode(f"Title: {chunk.title}\n{chunk.text}\n\n"))
    after.close()


def test_documents_that_an_earlier_version_left_waiting_with_their_chunks_answer(
    of_before: Parts, loaded: IngestParts, document_id: str
) -> None:
    after = other_chunk_size(of_before, loaded)
    with of_before.database.writing() as session:
        session.execute(update(DocumentRow).values(status=Status.ACCEPTED))
    assert after.refresh_outdated() == 0
    assert found(after) != []
    assert ingest_document(document_id, over(after, loaded)) is IngestOutcome.READY
    after.close()
