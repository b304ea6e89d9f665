"""What a crash leaves between two steps: never a row without its file, and nothing that stays for ever."""

import io
import os
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from qdrant_client import QdrantClient
from sqlalchemy import event

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.errors import Unavailable
from ragkv.ids import utc_now
from ragkv.retrieve.encoder import embed_question
from ragkv.retrieve.index import Held, Point
from ragkv.retrieve.qdrant import COLLECTION, QdrantIndex
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.checks import leftovers
from ragkv.service.checks.cleaning import (
    Cleaned,
    clean,
    collect_garbage,
    renew_points,
    restore_lost_points,
    restore_points,
    write_points,
)
from ragkv.service.checks.leftovers import missing_points
from ragkv.service.documents.changes import replace_document
from ragkv.service.documents.documents import delete_document, document_file, store_document
from ragkv.service.documents.removal import discard_unnamed
from ragkv.service.files.uploads import keep_file
from ragkv.service.kv_admin.usage import request_lost_prefixes
from ragkv.service.parts import Parts
from tests.conftest import lend_models
from tests.support.over_http import ADA, wait_until
from tests.support.qdrant_server import QdrantServer
from workers.sweep import LOGS_EVERY, Sweeper

GRACE = b"# Grace Hopper\n\nGrace Hopper wrote the first compiler, and found the first bug.\n"
NOTHING = Cleaned(0, 0, 0, 0)


@pytest.fixture
def document_id(parts: Parts) -> str:
    return store_document(parts.default_collection, "ada.md", io.BytesIO(ADA), parts.intake).document_id


@pytest.fixture
def server_index(parts: Parts) -> Iterator[QdrantIndex]:
    """Parts with Qdrant, in its client's local mode, instead of the index in memory."""
    index = QdrantIndex(QdrantClient(location=":memory:"), "Qdrant in this process")
    index.ensure(parts.encoder.dim)
    parts.qdrant = parts.server_index = index
    yield index
    index.close()
    parts.qdrant = parts.server_index = None


def files(parts: Parts) -> list[bytes]:
    return [path.read_bytes() for path in parts.settings.files_dir.rglob("*") if path.is_file()]


def age(folder: Path, hours: float) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - hours * 3600,) * 2)


def later() -> datetime:
    return utc_now() + timedelta(seconds=1)


class TestFiles:
    def test_a_replacement_that_is_not_committed_leaves_the_old_file(self, parts: Parts, document_id: str):
        def fail(connection: object) -> None:
            raise ConnectionError("the connection broke")

        event.listen(parts.database.engine, "commit", fail)
        with pytest.raises(ConnectionError):
            replace_document(
                parts.default_collection.tenant_id,
                document_id,
                "grace.md",
                io.BytesIO(GRACE),
                parts.intake,
                parts.removal,
            )
        event.remove(parts.database.engine, "commit", fail)

        path, name = document_file(parts.default_collection.tenant_id, document_id, parts.database, parts.files)
        assert (path.read_bytes(), name) == (ADA, "ada.md")

    def test_a_replaced_file_goes_once_the_new_one_is_committed(self, parts: Parts, document_id: str):
        replace_document(
            parts.default_collection.tenant_id, document_id, "grace.md", io.BytesIO(GRACE), parts.intake, parts.removal
        )

        assert files(parts) == [GRACE]

    def test_a_file_that_another_row_names_stays(self, parts: Parts, document_id: str):
        kept = keep_file(
            parts.default_collection.tenant_id,
            "ada.md",
            "assistants",
            io.BytesIO(ADA),
            parts.database,
            parts.settings,
            parts.files,
        )
        delete_document(parts.default_collection.tenant_id, document_id, parts.removal)

        assert kept.bytes == len(ADA) and files(parts) == [ADA]

    def test_what_killed_uploads_leave_goes_after_an_hour_and_nothing_else(self, parts: Parts, document_id: str):
        """One was received in part, one was renamed and never committed."""
        folder = parts.settings.files_dir
        partial, unnamed = folder / "upload-killed", parts.files.path(parts.default_collection.tenant_id, "ab" * 32)
        unnamed.parent.mkdir(parents=True)
        for path in (partial, unnamed):
            path.write_bytes(b"x")
        assert clean(parts.database, parts.removal, parts.server_index) == NOTHING, "too young"

        age(folder, 2)
        assert list(parts.files.unfinished(later())) == [partial]
        assert leftovers.unnamed_files(later(), parts.database, parts.files) == [
            (parts.default_collection.tenant_id, "ab" * 32)
        ]
        assert clean(parts.database, parts.removal, parts.server_index) == Cleaned(
            uploads=1, files=1, documents=0, attachments=0
        )
        assert files(parts) == [ADA]

    def test_with_another_database_files_and_kv_stay_until_the_right_one_is_back(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex, tmp_path: Path
    ):
        ingest_document(document_id, ingest)
        age(parts.settings.data_dir, 100)
        keys = set(parts.kv_store.keys())

        other = Parts(msgspec.structs.replace(parts.settings, database_url=f"sqlite:///{tmp_path / 'new.sqlite3'}"))
        lend_models(other, ingest)
        other.prepare_database()
        stray(server_index, parts, document_id, 1)
        assert clean(other.database, other.removal, server_index) == NOTHING
        assert collect_garbage(other).files == 0
        other.close()

        assert files(parts) == [ADA] and set(parts.kv_store.keys()) == keys

    def test_a_file_that_got_a_row_meanwhile_is_not_removed(self, parts: Parts, document_id: str):
        """Found without a row, and uploaded before it was to be removed."""
        path, _ = document_file(parts.default_collection.tenant_id, document_id, parts.database, parts.files)

        assert not discard_unnamed(parts.default_collection.tenant_id, [path.name], parts.database, parts.files)
        assert files(parts) == [ADA]

    def test_rows_without_their_file_are_found(self, parts: Parts, document_id: str):
        assert leftovers.missing_files(parts.database, parts.files) == []
        path, _ = document_file(parts.default_collection.tenant_id, document_id, parts.database, parts.files)
        path.unlink()

        assert leftovers.missing_files(parts.database, parts.files) == [(parts.default_collection.tenant_id, path.name)]


class TestKV:
    def test_entries_without_files_are_found(self, parts: Parts, ingest: IngestParts, document_id: str):
        ingest_document(document_id, ingest)
        assert leftovers.missing_kv(parts.database, parts.kv_store) == []
        for key in list(parts.kv_store.keys()):
            parts.kv_store.delete([key])

        assert [size > 0 for _, size in leftovers.missing_kv(parts.database, parts.kv_store)] == [True]

    def test_a_lost_prefix_is_computed_again_though_no_document_lacks_kv(
        self, parts: Parts, ingest: IngestParts, document_id: str
    ):
        ingest_document(document_id, ingest)
        prefix = parts.keys_of(parts.default_collection.tenant_id).prefix()
        assert request_lost_prefixes(parts.database, parts.kv_store, parts.kv_remote, parts.keys_of) == 0

        parts.kv_store.drop([prefix])
        assert request_lost_prefixes(parts.database, parts.kv_store, parts.kv_remote, parts.keys_of) == 1
        assert request_lost_prefixes(parts.database, parts.kv_store, parts.kv_remote, parts.keys_of) == 0, (
            "it is on its way"
        )
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert prefix in parts.kv_store

    def test_unfinished_files_are_found_whoever_wrote_them(self, parts: Parts):
        """Ours end in .partial, those of safetensors begin with .tmp."""
        folder = parts.settings.kv_dir / "ab"
        folder.mkdir(parents=True)
        unfinished = {folder / f".{'ab' * 32}.safetensors.1.partial", folder / ".tmpUc2xQn"}
        for path in (*unfinished, parts.kv_store.path("ab" * 32)):
            path.write_bytes(b"x")

        assert set(parts.kv_store.partial(later())) == unfinished
        assert list(parts.kv_store.partial(utc_now() - timedelta(hours=1))) == []


class TestPoints:
    def test_points_of_documents_that_are_gone_are_removed(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex
    ):
        """Left by a worker that was killed between writing them and finding out that its document was deleted."""
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        other = store_document(parts.default_collection, "grace.md", io.BytesIO(GRACE), parts.intake).document_id
        ingest_document(other, ingest)
        before = {held: points for held, points in server_index.held().items() if held.document_id == document_id}
        server_index.delete_documents([other])
        delete_document(parts.default_collection.tenant_id, other, parts.removal)
        stray(server_index, parts, "f" * 32, 3)

        assert leftovers.stray_points(parts.database, parts.server_index) == ["f" * 32]
        assert clean(parts.database, parts.removal, parts.server_index).documents == 1
        assert server_index.held() == before

    def test_until_then_they_take_no_place_in_a_search(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex
    ):
        """They lie nearer to the question than all that is there."""
        ingest_document(document_id, ingest)
        stray(server_index, parts, "f" * 32, 5)
        parts.retriever._index = server_index

        found = parts.retriever.search(
            parts.default_collection.tenant_id, parts.default_collection.collection_id, "first program", 2, 2
        )
        assert [passage.chunk.document_id for passage in found] == [document_id]

    def test_a_document_whose_replacement_cannot_be_read_has_the_points_it_answers_by(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex
    ):
        """Also while the replacement waits."""
        tenant_id = parts.default_collection.tenant_id
        ingest_document(document_id, ingest)
        before = server_index.held()
        replace_document(
            tenant_id, document_id, "broken.pdf", io.BytesIO(b"%PDF-1.4 broken"), parts.intake, parts.removal
        )
        renew_points(parts.database, parts.server_index, parts.source)
        assert server_index.held() == before

        assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
        renew_points(parts.database, parts.server_index, parts.source)
        assert server_index.held() == before
        server_index.delete_documents([document_id])
        assert write_points(
            missing_points(parts.database, parts.server_index), parts.server_index, parts.source
        ) == sum(before.values())
        assert server_index.held() == before

    def test_a_server_that_lost_its_data_gets_it_again(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex
    ):
        ingest_document(document_id, ingest)
        before = server_index.held()
        server_index._client.delete_collection(COLLECTION)

        assert restore_points(parts) == sum(before.values())
        assert server_index.held() == before
        assert restore_points(parts) == 0

    def test_who_starts_before_makes_no_empty_collection_in_its_place(
        self, parts: Parts, ingest: IngestParts, document_id: str
    ):
        """Searches would find in it what is indexed from then on, and nothing else."""
        ingest_document(document_id, ingest)
        server = QdrantServer()
        server.start()
        settings = msgspec.structs.replace(parts.settings, qdrant_url=server.url)
        with closing(Parts(settings)) as started:
            lend_models(started, ingest)
            with pytest.raises(Unavailable, match="collection ragkv_chunks is gone"):
                started.server_index.held()
            assert restore_points(started) == 1
            assert [place.document_id for place in started.server_index.held()] == [document_id]
        server.stop()

    def test_until_then_nothing_is_found_which_is_no_answer(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex
    ):
        """Where the server keeps an empty collection."""
        ingest_document(document_id, ingest)
        parts.retriever._index, parts.retriever._mirror = server_index, None
        place = parts.default_collection.tenant_id, parts.default_collection.collection_id
        server_index._client.delete_collection(COLLECTION)
        server_index.ensure(parts.encoder.dim)

        for document_ids in (None, frozenset({document_id})):
            with pytest.raises(Unavailable, match="fsck --repair"):
                parts.retriever.search(*place, "first program", 2, 2, document_ids)
        assert parts.retriever.search(*place, "first program", 2, 2, frozenset({"f" * 32})) == []

        restore_points(parts)
        assert parts.retriever.search(*place, "first program", 2, 2)
        delete_document(place[0], document_id, parts.removal)
        assert parts.retriever.search(*place, "first program", 2, 2) == []

    def test_a_running_worker_notices_within_a_minute(
        self, parts: Parts, ingest: IngestParts, document_id: str, server_index: QdrantIndex
    ):
        ingest_document(document_id, ingest)
        before = server_index.held()
        assert restore_lost_points(parts) == 0
        sweeper = Sweeper(parts)
        sweeper.sweep()
        server_index._client.delete_collection(COLLECTION)

        for _ in range(LOGS_EVERY):
            sweeper.sweep()

        assert server_index.held() == before

    def test_those_that_a_worker_is_about_to_write_are_not_missing(
        self,
        parts: Parts,
        ingest: IngestParts,
        document_id: str,
        server_index: QdrantIndex,
        monkeypatch: pytest.MonkeyPatch,
    ):
        found: list[list[Held]] = []
        replace = server_index.replace

        def looked_for(*given: Any) -> None:
            found.append(missing_points(parts.database, parts.server_index))
            replace(*given)

        monkeypatch.setattr(server_index, "replace", looked_for)
        ingest_document(document_id, ingest)
        assert found == [[]]


def test_the_first_sweep_of_a_worker_cleans(parts: Parts, redis_server: EmbeddedRedis):
    """So that what its predecessor left when it was killed goes as soon as it is old enough."""
    parts.settings.files_dir.mkdir(parents=True)
    (parts.settings.files_dir / "upload-killed").write_bytes(b"x")
    age(parts.settings.files_dir, 2)
    Sweeper(parts).sweep()

    assert files(parts) == []


def test_a_worker_that_starts_queues_at_once_what_its_predecessor_had_taken(
    parts: Parts, redis_server: EmbeddedRedis, document_id: str
):
    """Workers that are killed every 20 s, of which their start takes ten, never came to a sweep after 15 s."""
    sweeper = Sweeper(parts, interval_s=3600)
    sweeper.start()

    wait_until(lambda: parts.queue.depth() == 1, seconds=10)
    sweeper.stop()


def stray(index: QdrantIndex, parts: Parts, document_id: str, number: int) -> None:
    """Points of a document that the database does not know."""
    vectors = embed_question(parts.encoder, "first program")
    points = [Point(f"{document_id}:{n}", document_id, "first program", vectors) for n in range(number)]
    index.upsert(parts.default_collection.tenant_id, parts.default_collection.collection_id, points)
