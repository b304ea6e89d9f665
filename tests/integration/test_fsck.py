"""`ragkv fsck`: each way in which rows, files, KV and vectors can disagree is found, left alone, and mended when
asked."""

import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import delete, select, update

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.cli.fsck import fsck
from ragkv.errors import Unavailable
from ragkv.ids import utc_now
from ragkv.retrieve.index import Held, Point
from ragkv.service.base.status import JobStatus, Status
from ragkv.service.base.tables import ChunkRow, DocumentRow, FileRow, JobRow, KVEntryRow
from ragkv.service.checks.check import WHILE_RUNNING, WHILE_STOPPED
from ragkv.service.checks.cleaning import renew_points
from ragkv.service.checks.fsck import checks, examine, repair
from ragkv.service.documents.documents import document_view, store_document
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import ingest_over, lend_models
from tests.support.made_kv import stored_kv
from tests.support.qdrant_server import QdrantServer

BODY = b"# Engines\n\n" + b"".join(b"Engine number %d stood in hall %d.\n\n" % (i, i % 7) for i in range(12))
NAMELESS = "f" * 64


@pytest.fixture
def ready(parts: Parts, ingest: IngestParts) -> str:
    """The id of a document that is ready."""
    return _read(parts, ingest)


def _read(parts: Parts, ingest: IngestParts) -> str:
    document_id = store_document(parts.default_collection, "engines.md", io.BytesIO(BODY), parts.intake).document_id
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    return document_id


def found(parts: Parts) -> dict[str, list[str]]:
    return {finding.check: finding.found for finding in examine(WHILE_STOPPED, parts) if finding.found}


def mend(parts: Parts) -> set[str]:
    return {finding.check for finding in repair(WHILE_STOPPED, parts) if finding.mended}


def some_key(parts: Parts) -> str:
    prefix = parts.keys_of(parts.default_collection.tenant_id).prefix()
    return next(key for key in sorted(parts.kv_store.keys()) if key != prefix)


def change(parts: Parts, **columns: object) -> None:
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(**columns))


def lose_file(parts: Parts, document_id: str) -> None:
    path, *_ = parts.files.folder.glob("*/??/*")
    path.unlink()


def leave_nameless_file(parts: Parts, document_id: str) -> None:
    path = parts.files.path(parts.default_collection.tenant_id, NAMELESS)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nobody names this")


def leave_unfinished_upload(parts: Parts, document_id: str) -> None:
    (parts.files.folder / "upload-abc").write_bytes(b"half")


def lose_kv_file(parts: Parts, document_id: str) -> None:
    parts.kv_store.path(some_key(parts)).unlink()


def damage_kv_file(parts: Parts, document_id: str) -> None:
    path = parts.kv_store.path(some_key(parts))
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def lose_kv_entry(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.execute(delete(KVEntryRow).where(KVEntryRow.key == some_key(parts)))


def leave_nameless_kv(parts: Parts, document_id: str) -> None:
    kept = stored_kv(parts.kv_store, some_key(parts), parts.layout)
    assert kept is not None
    parts.kv_store.put(NAMELESS, kept)


def leave_unused_kv(parts: Parts, document_id: str) -> None:
    row = KVEntryRow(key=NAMELESS, tenant_id=parts.default_collection.tenant_id, num_tokens=1, num_bytes=1)
    leave_nameless_kv(parts, document_id)
    with parts.database.writing() as session:
        session.add(row)


def leave_partial_kv(parts: Parts, document_id: str) -> None:
    path = parts.kv_store.path(some_key(parts))
    path.with_name(f".{path.name}.0.partial").write_bytes(b"half")


def leave_lapsed_lease(parts: Parts, document_id: str) -> None:
    change(parts, status=Status.INDEXING, lease_owner="dead:1:x", lease_until=utc_now() - timedelta(minutes=9))


def take_lease_by_a_clock_ahead(parts: Parts, document_id: str) -> None:
    change(parts, status=Status.INDEXING, lease_owner="early:1:x", lease_until=utc_now() + timedelta(days=1))


def leave_job_open(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.add(JobRow(tenant_id=parts.default_collection.tenant_id, document_id=document_id, kind="rebuild"))


def leave_job_running(parts: Parts, document_id: str) -> None:
    change(parts, status=Status.ACCEPTED)
    with parts.database.writing() as session:
        session.execute(update(JobRow).values(status=JobStatus.RUNNING))


def lose_a_chunk(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.execute(delete(ChunkRow).where(ChunkRow.id == f"{document_id}:0"))


Break = Callable[[Parts, str], None]
WAYS: list[tuple[Break, set[str], Status]] = [
    (lose_file, {"documents_without_file"}, Status.FAILED),
    (leave_nameless_file, {"unnamed_files"}, Status.READY),
    (leave_unfinished_upload, {"abandoned_uploads"}, Status.READY),
    (lose_kv_file, {"kv_without_file"}, Status.READY),
    (damage_kv_file, {"damaged_kv"}, Status.READY),
    (lose_kv_entry, {"ready_without_kv"}, Status.READY),
    (leave_nameless_kv, {"unnamed_kv"}, Status.READY),
    (leave_unused_kv, {"unused_kv"}, Status.READY),
    (leave_partial_kv, {"partial_kv"}, Status.READY),
    (leave_lapsed_lease, {"stale_leases"}, Status.READY),
    (take_lease_by_a_clock_ahead, {"stale_leases"}, Status.READY),
    (leave_job_open, {"unclosed_jobs"}, Status.READY),
    (leave_job_running, {"unheld_jobs"}, Status.READY),
    (lose_a_chunk, {"miscounted_documents", "unused_kv"}, Status.READY),
]


def test_nothing_is_amiss_after_an_ingestion(parts: Parts, ready: str):
    assert found(parts) == {}


@pytest.mark.parametrize(("break_it", "expected", "ends"), WAYS, ids=[way[0].__name__ for way in WAYS])
def test_what_is_broken_is_found_and_mended_and_the_document_ends_well(
    parts: Parts, ingest: IngestParts, ready: str, break_it: Break, expected: set[str], ends: Status
):
    """Looking changes nothing; after mending and, where it must, reading again, nothing is amiss."""
    before = set(parts.kv_store.keys())
    break_it(parts, ready)
    first = found(parts)
    assert set(first) == expected
    assert found(parts) == first

    assert mend(parts) >= expected & {next(iter(expected))}
    for document_id in stuck_ids(parts.database):
        ingest_document(document_id, ingest)
    assert found(parts) == {}
    view = document_view(parts.default_collection.tenant_id, ready, parts.database)
    assert view.status is ends
    assert view.error is None or "upload it again" in view.error
    assert set(parts.kv_store.keys()) == before


def test_a_document_that_failed_for_want_of_its_file_is_read_again_when_it_is_uploaded_again(
    parts: Parts, ingest: IngestParts, ready: str
):
    lose_file(parts, ready)
    mend(parts)

    assert _read(parts, ingest) == ready


def bring_file_back(parts: Parts, document_id: str) -> None:
    store_document(parts.default_collection, "engines.md", io.BytesIO(BODY), parts.intake)


def make_kv_anew(parts: Parts, document_id: str) -> None:
    """As a worker does."""
    sound, *_ = (
        kv for file in parts.kv_store.files() if (kv := stored_kv(parts.kv_store, file.key, parts.layout)) is not None
    )
    with parts.database.reading() as session:
        for key in session.scalars(select(KVEntryRow.key)).all():
            if key not in parts.kv_store:
                parts.kv_store.put(key, sound)


def use_it(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.add(KVEntryRow(key=NAMELESS, tenant_id=parts.default_collection.tenant_id, num_tokens=1, num_bytes=1))
    use_it_still(parts, document_id)


def use_it_still(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.execute(update(ChunkRow).where(ChunkRow.id == f"{document_id}:0").values(kv_key=NAMELESS))


@pytest.mark.parametrize(
    ("break_it", "name", "settle"),
    [
        (lose_file, "documents_without_file", bring_file_back),
        (lose_kv_file, "kv_without_file", make_kv_anew),
        (damage_kv_file, "damaged_kv", make_kv_anew),
        (leave_nameless_kv, "unnamed_kv", use_it),
        (leave_unused_kv, "unused_kv", use_it_still),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_settled_between_the_finding_and_its_repair_is_left_alone(
    parts: Parts, ready: str, break_it: Break, name: str, settle: Break
):
    (check,) = (check for check in checks(parts.settings, quick=False) if check.name == name)
    break_it(parts, ready)
    names = list(check.find(WHILE_STOPPED, parts))
    settle(parts, ready)
    keys = set(parts.kv_store.keys())

    check.mend(names, WHILE_STOPPED, parts)

    assert names and set(parts.kv_store.keys()) == keys
    assert document_view(parts.default_collection.tenant_id, ready, parts.database).status is Status.READY


def test_documents_are_not_taken_for_lost_while_the_folder_of_their_files_is_not_mounted(parts: Parts, ready: str):
    parts.files.folder.rename(parts.files.folder.with_name("elsewhere"))

    with pytest.raises(Unavailable, match="RAGKV_DATA_DIR"):
        mend(parts)
    assert document_view(parts.default_collection.tenant_id, ready, parts.database).status is Status.READY


def test_an_upload_whose_bytes_are_gone_is_forgotten(parts: Parts):
    parts.files.folder.mkdir()
    row = FileRow(
        tenant_id=parts.default_collection.tenant_id, sha256=NAMELESS, name="a.md", num_bytes=1, purpose="assistants"
    )
    with parts.database.writing() as session:
        session.add(row)

    assert set(found(parts)) == {"uploads_without_file"}
    mend(parts)
    assert found(parts) == {}


@pytest.mark.parametrize(
    "leave",
    [leave_unfinished_upload, leave_nameless_file, leave_partial_kv, leave_nameless_kv],
    ids=lambda way: way.__name__,
)
def test_what_may_belong_to_work_under_way_is_left_alone_while_the_service_runs(parts: Parts, ready: str, leave: Break):
    leave(parts, ready)

    assert not any(finding.found for finding in repair(WHILE_RUNNING, parts))


class TestQdrant:
    @pytest.fixture
    def qdrant(self) -> Iterator[QdrantServer]:
        server = QdrantServer()
        server.start()
        yield server
        server.stop()

    @pytest.fixture
    def with_qdrant(self, settings: Settings, loaded: IngestParts, qdrant: QdrantServer) -> Iterator[Parts]:
        parts = Parts(msgspec.structs.replace(settings, qdrant_url=qdrant.url))
        lend_models(parts, loaded)
        parts.prepare()
        yield parts
        parts.close()

    def test_points_without_rows_and_rows_without_points_are_found_and_mended(
        self, with_qdrant: Parts, loaded: IngestParts
    ):
        parts, ingest = with_qdrant, ingest_over(with_qdrant, loaded)
        document_id, index = _read(parts, ingest), parts.server_index
        assert index is not None and found(parts) == {}
        points = parts.source.points([document_id])
        ref = parts.default_collection
        index.delete_documents([document_id])
        index.upsert(ref.tenant_id, ref.collection_id, points[1:])
        index.upsert(ref.tenant_id, ref.collection_id, [stray(point) for point in points])

        assert set(found(parts)) == {"stray_points", "missing_points"}
        mend(parts)
        assert found(parts) == {}
        hits = parts.retriever.search(ref.tenant_id, ref.collection_id, "engine number 0 stood in hall 0", 3, 1)
        assert hits and {hit.chunk.document_id for hit in hits} == {document_id}

    def test_a_document_that_is_indexed_while_points_are_renewed_keeps_its_own(
        self, with_qdrant: Parts, loaded: IngestParts, monkeypatch: pytest.MonkeyPatch
    ):
        parts, ingest, index = with_qdrant, ingest_over(with_qdrant, loaded), with_qdrant.server_index
        assert index is not None
        held = index.held

        def indexed_meanwhile() -> Mapping[Held, int]:
            _read(parts, ingest)
            return held()

        with monkeypatch.context() as patched:
            patched.setattr(index, "held", indexed_meanwhile)
            renew_points(parts.database, parts.server_index, parts.source)
        assert found(parts) == {}


def stray(point: Point) -> Point:
    """The point as one of a document that is gone."""
    gone = "0" * 32
    return dataclasses.replace(point, document_id=gone, chunk_id=point.chunk_id.replace(point.document_id, gone))


class TestCommand:
    @pytest.fixture
    def environ(self, parts: Parts) -> dict[str, str | None]:
        settings = parts.settings
        return {
            "RAGKV_DATA_DIR": str(settings.data_dir),
            "RAGKV_MODEL": settings.model,
            "RAGKV_CHUNK_TOKENS": str(settings.chunk_tokens),
        }

    def test_exit_codes_say_clean_found_and_mended(self, parts: Parts, ready: str, environ: dict[str, str | None]):
        assert CliRunner().invoke(fsck, [], env=environ).exit_code == 0
        lose_kv_file(parts, ready)
        shown = CliRunner().invoke(fsck, ["--json"], env=environ)
        mended = CliRunner().invoke(fsck, ["--repair"], env=environ)

        assert (shown.exit_code, mended.exit_code) == (1, 1)
        counts = {finding["check"]: len(finding["found"]) for finding in json.loads(shown.output)["findings"]}
        assert counts.pop("kv_without_file") == 1 and not any(counts.values())
        assert "done: KV recomputed" in mended.output

    def test_a_database_that_is_away_is_exit_code_2(self, environ: dict[str, str | None]):
        away = {**environ, "RAGKV_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}
        assert CliRunner().invoke(fsck, [], env=away).exit_code == 2
