"""From accepted to ready: in this process, and by real workers over a real queue."""

import io
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import func, select, text, update

from api.worker_process import COMMAND, WorkerProcess
from ingest.parts import IngestParts
from ingest.pipeline import MAX_ATTEMPTS, MAX_DEATHS, SEVERAL, IngestOutcome, ingest_document, work_on
from ingest.turn import Interrupted
from ragkv.engine.protocol import Prefill
from ragkv.errors import NotFound, Rejected, TooLarge
from ragkv.ids import utc_now
from ragkv.kv.format import KVFormat
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.migrate import VERSION_TABLE
from ragkv.service.base.status import REREAD, Status
from ragkv.service.base.tables import ChunkRow, DocumentRow, KVEntryRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.documents.changes import replace_document
from ragkv.service.documents.documents import (
    DocumentView,
    accept_document,
    delete_document,
    delete_documents,
    document_view,
    store_document,
)
from ragkv.service.documents.job_statements import Others
from ragkv.service.documents.lease import LEASE, Lease
from ragkv.service.documents.requeue import requeue_stuck
from ragkv.service.kv_admin.entry_statements import KVOwner, keys_of_documents
from ragkv.service.kv_admin.eviction import evict
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import ingest_over, lend_models
from tests.support.documents import LONG, kv_files
from tests.support.echo_engine import EchoEngine, engine_for_workers
from tests.support.hostile_files import pdfs
from tests.support.made_files import docx, paragraph
from tests.support.over_http import ADA, wait_until


def stored(parts: Parts, body: bytes = ADA, name: str = "ada.md") -> str:
    return store_document(parts.default_collection, name, io.BytesIO(body), parts.intake).document_id


def view(parts: Parts, document_id: str) -> DocumentView:
    return document_view(parts.default_collection.tenant_id, document_id, parts.database)


def changed_in_place(parts: Parts, ingest: IngestParts, folder: str, name: str, home: Path) -> Parts:
    """The same parts after one file of a model's folder was changed."""
    other = Parts(parts.settings)
    lend_models(other, ingest)
    changed = home / folder
    shutil.copytree(getattr(parts, folder), changed, copy_function=os.symlink)
    content = (changed / name).read_text()
    (changed / name).unlink()
    (changed / name).write_text(content + "\n")
    setattr(other, folder, changed)
    return other


class TestAccepting:
    def test_the_same_bytes_are_the_same_document(self, parts: Parts):
        first = store_document(parts.default_collection, "a.md", io.BytesIO(ADA), parts.intake)
        second = store_document(parts.default_collection, "b.md", io.BytesIO(ADA), parts.intake)

        assert (first.created, second.created) == (True, False)
        assert first.document_id == second.document_id

    def test_files_are_private_and_complete(self, parts: Parts):
        stored(parts)

        files = [path for path in parts.settings.files_dir.rglob("*") if path.is_file()]
        assert [path.read_bytes() for path in files] == [ADA]
        assert all(path.stat().st_mode & 0o077 == 0 for path in files)

    def test_too_many_bytes_are_refused_and_leave_nothing(self, settings: Settings):
        small = Parts(msgspec.structs.replace(settings, max_upload_bytes=10))
        small.prepare()

        with pytest.raises(TooLarge, match="RAGKV_MAX_UPLOAD_BYTES"):
            stored(small)
        with pytest.raises(Rejected, match="empty"):
            stored(small, b"")
        assert list(small.settings.files_dir.iterdir()) == []
        small.close()

    def test_a_queue_that_is_away_loses_nothing(self, parts: Parts):
        """The document is accepted; the sweep queues it once Redis is back."""
        accepted = accept_document(parts.default_collection, "a.md", io.BytesIO(ADA), parts.intake)
        assert view(parts, accepted.document_id).status is Status.ACCEPTED

        server = EmbeddedRedis(parts.settings)
        server.start()
        assert requeue_stuck(parts.database, parts.queue) == [accepted.document_id]
        assert requeue_stuck(parts.database, parts.queue) == ()  # it waits in the queue now
        server.stop()

    def test_a_name_keeps_its_last_part_only(self, parts: Parts):
        document_id = stored(parts, name="../../etc/\x1bpass\x00wd.md")

        assert view(parts, document_id).name == "passwd.md"


class TestIngesting:
    def test_a_document_becomes_ready_and_its_chunks_can_be_searched(self, parts: Parts, ingest: IngestParts):
        document_id, stages = stored(parts, LONG), []

        assert ingest_document(document_id, ingest, lambda *at: stages.append(at)) is IngestOutcome.READY
        shown = view(parts, document_id)
        assert (shown.status, shown.title, shown.error) == (Status.READY, "Engines", None)
        assert shown.chunks == len(kv_files(parts)) > 3
        assert [stage for stage, *_ in stages] == sorted(
            (s for s, *_ in stages), key=["parse", "embed", "prefill"].index
        )
        found = parts.retriever.search(
            parts.default_collection.tenant_id, parts.default_collection.collection_id, "hall of engine 41", 3, 1
        )
        assert any("Engine number 41 " in passage.chunk.text for passage in found)

    def test_a_second_time_nothing_is_done(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts)
        ingest_document(document_id, ingest)

        assert ingest_document(document_id, ingest) is IngestOutcome.SKIPPED

    def test_a_file_that_cannot_be_read_fails_at_once_with_the_reason(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts, b"%PDF-1.4 cut short", "broken.pdf")

        assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
        assert (view(parts, document_id).error or "").startswith("it ends before its end mark")

    def test_uploading_a_failed_document_again_gives_it_another_chance(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts, b"%PDF-1.4 cut short", "broken.pdf")
        ingest_document(document_id, ingest)

        assert stored(parts, b"%PDF-1.4 cut short", "broken.pdf") == document_id
        assert view(parts, document_id).status is Status.ACCEPTED

    def test_the_third_failure_is_the_last(self, parts: Parts, ingest: IngestParts):
        """Whatever is wrong with the document itself, or with the program, is shown as the reason."""
        document_id = stored(parts)
        parts.files.delete(parts.default_collection.tenant_id, _sha256(parts, document_id))

        for _ in range(MAX_ATTEMPTS - 1):
            with pytest.raises(NotFound):
                ingest_document(document_id, ingest)
        assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
        assert "upload it again" in (view(parts, document_id).error or "")

    def test_a_document_that_kills_its_worker_fails_in_the_end(self, parts: Parts, ingest: IngestParts):
        document_id, another = stored(parts), stored(parts, LONG)
        _kill(parts, another, 1)
        _kill(parts, document_id, MAX_ATTEMPTS)

        assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
        assert "died 3 times" in (view(parts, document_id).error or "")

    def test_where_workers_die_with_other_documents_too_no_document_is_blamed(self, parts: Parts, ingest: IngestParts):
        """They are killed from outside. It does not go on for ever: one of several documents may be the killer."""
        others = [stored(parts, LONG + b"\n" * n) for n in range(SEVERAL)]
        innocent, killer = stored(parts), stored(parts, ADA + b"\n\n")
        for document_id in others:
            _kill(parts, document_id, 1)
            assert ingest_document(document_id, ingest) is IngestOutcome.READY
        _kill(parts, innocent, MAX_ATTEMPTS)
        _kill(parts, killer, MAX_DEATHS)

        assert ingest_document(innocent, ingest) is IngestOutcome.READY
        assert ingest_document(killer, ingest) is IngestOutcome.FAILED
        assert "died 10 times" in (view(parts, killer).error or "")

    def test_what_another_worker_holds_is_left_alone(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts)
        Lease.take(parts.database, document_id, "another")

        assert ingest_document(document_id, ingest) is IngestOutcome.SKIPPED

    @pytest.mark.parametrize("stage", ["parse", "embed", "prefill"])
    def test_stopping_anywhere_costs_nothing(self, parts: Parts, ingest: IngestParts, stage: str):
        document_id = stored(parts)

        def stop(at: str, done: int, total: int) -> None:
            if at == stage:
                raise Interrupted

        with pytest.raises(Interrupted):
            ingest_document(document_id, ingest, stop)
        assert _row(parts, document_id).attempts == 0
        assert ingest_document(document_id, ingest) is IngestOutcome.READY

    def test_a_document_that_is_deleted_or_replaced_as_its_turn_ends_is_no_failure(
        self, parts: Parts, ingest: IngestParts
    ):
        """Nor as the worker stops."""
        tenant_id = parts.default_collection.tenant_id
        replaced, deleted = stored(parts), stored(parts, LONG)

        def replace_it() -> Others:
            replace_document(tenant_id, replaced, "new.md", io.BytesIO(b"New."), parts.intake, parts.removal)
            return Others.UNREAD

        def stop(*_: object) -> None:
            delete_document(tenant_id, deleted, parts.removal)
            raise Interrupted

        lease = Lease.take(parts.database, replaced, "worker")
        assert work_on(lease, ingest, others_wait=replace_it) is IngestOutcome.SKIPPED
        with pytest.raises(Interrupted):
            ingest_document(deleted, ingest, stop)
        assert ingest_document(replaced, ingest) is IngestOutcome.READY

    def test_documents_with_equal_chunks_share_their_kv(self, parts: Parts, ingest: IngestParts):
        one, two = stored(parts), stored(parts, ADA + b"\n\n")
        ingest_document(one, ingest)
        before = kv_files(parts)
        ingest_document(two, ingest)

        assert one != two
        assert kv_files(parts) == before

    def test_other_chunk_sizes_have_documents_read_again(self, parts: Parts, ingest: IngestParts, settings: Settings):
        document_id = stored(parts, LONG)
        ingest_document(document_id, ingest)
        before = view(parts, document_id).chunks

        other = Parts(msgspec.structs.replace(settings, chunk_tokens=128))
        lend_models(other, ingest)
        assert other.refresh_outdated() == 1
        assert ingest_document(document_id, ingest_over(other, ingest)) is IngestOutcome.READY
        assert view(other, document_id).chunks < before
        assert other.refresh_outdated() == 0
        other.close()

    def test_another_tokenizer_or_encoder_in_the_same_place_has_documents_read_again(
        self, parts: Parts, ingest: IngestParts, settings: Settings, tmp_path: Path
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)

        for folder in ("model_folder", "encoder_folder"):
            other = changed_in_place(parts, ingest, folder, "tokenizer_config.json", tmp_path)
            assert (other.index_fingerprint != parts.index_fingerprint, other.model_fingerprint) == (
                True,
                parts.model_fingerprint,
            )
            assert other.refresh_outdated() == 1
            assert view(parts, document_id).stage == REREAD
            ingest_document(document_id, ingest_over(other, ingest))
            parts.refresh_outdated()
            ingest_document(document_id, ingest)

    def test_other_weights_in_the_same_place_have_only_the_kv_made_again(
        self, parts: Parts, ingest: IngestParts, tmp_path: Path
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        before = set(parts.kv_store.keys())

        other = changed_in_place(parts, ingest, "model_folder", "config.json", tmp_path)
        assert (
            other.index_fingerprint,
            other.kv_fingerprint(parts.settings.kv_rule) != parts.kv_fingerprint(parts.settings.kv_rule),
        ) == (
            parts.index_fingerprint,
            True,
        )
        assert other.refresh_outdated() == 1
        assert view(parts, document_id).status is Status.SEARCHABLE
        ingest_document(document_id, ingest_over(other, ingest))
        assert len(kv_files(other) - before) == view(parts, document_id).chunks

    def test_terms_of_another_analysis_have_the_document_read_again_and_its_kv_kept(
        self, parts: Parts, ingest: IngestParts, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        before = kv_files(parts)
        monkeypatch.setattr("ragkv.service.parts.ANALYSIS_VERSION", 0)
        other = Parts(settings)
        lend_models(other, ingest)

        assert other.refresh_outdated() == 1
        place = other.default_collection
        assert list(other.source.indexed_documents(place.tenant_id, place.collection_id)) == [document_id]
        ingest_document(document_id, ingest_over(other, ingest))
        assert list(other.source.indexed_documents(place.tenant_id, place.collection_id)) == [document_id]
        assert kv_files(other) == before
        other.close()

    def test_other_instructions_have_only_the_kv_made_again(
        self, parts: Parts, ingest: IngestParts, settings: Settings
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)

        other = Parts(msgspec.structs.replace(settings, instructions="Answer in one word."))
        lend_models(other, ingest)
        assert other.refresh_outdated() == 1
        assert view(parts, document_id).status is Status.SEARCHABLE
        stages: list[str] = []
        ingest_document(document_id, ingest_over(other, ingest), lambda stage, *_: stages.append(stage))
        assert set(stages) == {"prefill"}
        other.close()

    @pytest.mark.parametrize("kv_format", [KVFormat.INT8, KVFormat.INT4])
    def test_another_format_is_made_from_the_kv_that_is_there(
        self, parts: Parts, ingest: IngestParts, settings: Settings, kv_format: KVFormat
    ):
        """Without the model, while the KV that is there answers; back again it is computed."""
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        before = kv_files(parts)
        other = Parts(msgspec.structs.replace(settings, kv_format=kv_format))

        assert other.refresh_outdated() == 1
        assert view(parts, document_id).status is Status.SEARCHABLE
        worker = IngestParts(other, engine=EchoEngine(other.settings))
        assert ingest_document(document_id, worker) is IngestOutcome.READY

        made = kv_files(parts) - before
        assert {parts.kv_store.shape(key).format for key in made} == {kv_format}
        assert len(made) == view(parts, document_id).chunks
        assert "prefiller" not in vars(worker)
        other.close()


class TestDeleting:
    def test_nothing_of_a_document_stays(self, parts: Parts, ingest: IngestParts):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        delete_document(parts.default_collection.tenant_id, document_id, parts.removal)

        assert kv_files(parts) == set()
        assert not [path for path in parts.settings.files_dir.rglob("*") if path.is_file()]
        with parts.database.reading() as session:
            for table in (DocumentRow, ChunkRow, KVEntryRow):
                assert session.scalar(select(func.count()).select_from(table)) == 0
        with pytest.raises(NotFound):
            delete_document(parts.default_collection.tenant_id, document_id, parts.removal)

    def test_kv_that_another_document_uses_stays(self, parts: Parts, ingest: IngestParts):
        one, two = stored(parts), stored(parts, ADA + b"\n\n")
        ingest_document(one, ingest)
        ingest_document(two, ingest)
        delete_document(parts.default_collection.tenant_id, one, parts.removal)
        assert kv_files(parts)

        delete_document(parts.default_collection.tenant_id, two, parts.removal)
        assert not kv_files(parts)

    def test_kv_that_a_document_in_progress_counts_on_is_made_again(self, parts: Parts, ingest: IngestParts):
        one, two = stored(parts), stored(parts, ADA + b"\n\n")
        ingest_document(one, ingest)

        def delete_the_other(stage: str, done: int, total: int) -> None:
            if stage == "prefill":
                with suppress(NotFound):
                    delete_document(parts.default_collection.tenant_id, one, parts.removal)

        ingest_document(two, ingest, delete_the_other)
        assert _row(parts, two).status is Status.READY
        assert _kv_keys(parts, two) == kv_files(parts) != set()

    @pytest.mark.parametrize("how", ["delete", "evict"])
    def test_files_stay_for_a_document_that_is_finished_with_them_before_they_go(
        self, parts: Parts, ingest: IngestParts, how: str
    ):
        one, two = stored(parts), stored(parts, ADA + b"\n\n")
        tenant_id, collection_id = parts.default_collection.tenant_id, parts.default_collection.collection_id
        ingest_document(one, ingest)

        def finish() -> None:
            ingest_document(two, ingest)

        if how == "delete":
            delete_documents(tenant_id, collection_id, [one], parts.removal.noting(finish))
        else:
            owner = KVOwner(tenant_id, collection_id, one)
            evict(owner, parts.database, parts.kv_store, parts.worker_counters, when_changed=finish)

        assert _row(parts, two).status is Status.READY
        assert _kv_keys(parts, two) == kv_files(parts) != set()

    @pytest.mark.parametrize("stage", ["parse", "embed", "prefill"])
    def test_deleting_while_a_worker_reads_stops_it_and_leaves_nothing(
        self, parts: Parts, ingest: IngestParts, stage: str
    ):
        document_id = stored(parts)

        def delete(at: str, done: int, total: int) -> None:
            if at == stage and done == total:
                delete_document(parts.default_collection.tenant_id, document_id, parts.removal)

        assert ingest_document(document_id, ingest, delete) is IngestOutcome.SKIPPED
        assert kv_files(parts) == set()

    def test_nothing_of_a_replaced_file_stays_once_the_present_one_is_searchable(
        self, parts: Parts, ingest: IngestParts
    ):
        """Also where the turn ends then. KV of text that stays is not computed again, and goes with the document."""
        document_id = stored(parts, LONG)
        ingest_document(document_id, ingest)
        of_earlier, changed = kv_files(parts), LONG.replace(b"number 59", b"number 60")
        tenant_id = parts.default_collection.tenant_id
        replace_document(tenant_id, document_id, "b.md", io.BytesIO(changed), parts.intake, parts.removal)
        lease = Lease.take(parts.database, document_id, "worker")
        assert work_on(lease, ingest, others_wait=lambda: Others.UNREAD) is IngestOutcome.YIELDED

        assert len(of_earlier - kv_files(parts)) == 1
        assert _kv_keys(parts, document_id) == kv_files(parts) != set()
        delete_document(tenant_id, document_id, parts.removal)
        assert kv_files(parts) == set()

    def test_replacing_while_kv_is_computed_leaves_none_of_it(self, parts: Parts, ingest: IngestParts):
        document_id, tenant_id = stored(parts), parts.default_collection.tenant_id

        class Replacing(EchoEngine):
            async def prefill(self, prefill: Prefill) -> None:
                await super().prefill(prefill)
                replace_document(tenant_id, document_id, "b.md", io.BytesIO(LONG), parts.intake, parts.removal)

        ingest.engine = Replacing(parts.settings)
        assert ingest_document(document_id, ingest) is IngestOutcome.SKIPPED
        assert kv_files(parts) == set()

    def test_a_strangers_document_is_not_found(self, parts: Parts):
        document_id = stored(parts)
        stranger = ensure_collection(parts.database, "stranger").tenant_id

        with pytest.raises(NotFound):
            document_view(stranger, document_id, parts.database)
        with pytest.raises(NotFound):
            delete_document(stranger, document_id, parts.removal)


class TestWorkerProcess:
    @pytest.fixture
    def worker(self, parts: Parts, redis_server: EmbeddedRedis) -> Iterator[WorkerProcess]:
        settings = parts.settings
        given = {
            "RAGKV_DATA_DIR": str(settings.data_dir),
            "RAGKV_MODEL": settings.model,
            "RAGKV_CHUNK_TOKENS": str(settings.chunk_tokens),
            "RAGKV_PARSE_SECONDS": "3",
        }
        worker = WorkerProcess(os.environ | given)
        worker.start()
        with engine_for_workers(settings):
            yield worker
        worker.stop()

    def test_documents_become_ready_though_the_worker_is_killed_messages_are_lost_and_hostile_files_come(
        self, parts: Parts, ingest: IngestParts, worker: WorkerProcess
    ):
        """One is accepted through the queue, one only in the database, as if the message had been lost; one was read by
        a worker with other settings, and is read again. The second worker then outlives a bomb, a hang and an encrypted
        file, which fail with what to do about it."""
        with closing(Parts(msgspec.structs.replace(parts.settings, chunk_tokens=128))) as other:
            lend_models(other, ingest)
            outdated = stored(parts, LONG + b"Once more.", "more.md")
            ingest_document(outdated, ingest_over(other, ingest))
        chunks = view(parts, outdated).chunks
        queued = accept_document(parts.default_collection, "a.md", io.BytesIO(ADA), parts.intake).document_id
        dropped = stored(parts, LONG, "engines.md")
        first = worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        wait_until(lambda: {view(parts, d).status for d in (queued, dropped)} == {Status.READY}, seconds=120)
        wait_until(lambda: view(parts, outdated).chunks > chunks, seconds=120)  # smaller ones
        second = worker.pid
        assert second != first

        hostile = {
            "bomb.docx": (docx(paragraph("words") + " " * 40_000_000), "split it or save it as PDF"),
            "hang.md": (b"> * a\n" * 1_000_000, "takes more than 3 s to read: split it"),
            "encrypted.pdf": (pdfs()["encrypted.pdf"](), "remove the password and upload it again"),
        }
        failing = {
            accept_document(parts.default_collection, name, io.BytesIO(body), parts.intake).document_id: reason
            for name, (body, reason) in hostile.items()
        }
        honest = accept_document(
            parts.default_collection, "c.md", io.BytesIO(ADA + b"Again."), parts.intake
        ).document_id
        wait_until(lambda: view(parts, honest).status is Status.READY, seconds=120)
        for document_id, reason in failing.items():
            failed = view(parts, document_id)
            assert failed.status is Status.FAILED
            assert reason in (failed.error or "")
        assert worker.pid == second

    @pytest.fixture
    def environ(self, parts: Parts) -> dict[str, str]:
        return os.environ | {"RAGKV_DATA_DIR": str(parts.settings.data_dir), "RAGKV_MODEL": parts.settings.model}

    def test_it_ends_with_the_reason_over_a_schema_that_it_does_not_know(self, parts: Parts, environ: dict[str, str]):
        with parts.database.writing() as session:
            session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        ended = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, check=False, timeout=120)

        assert ended.returncode == 1
        assert (
            "the worker does not start: the database has a schema that this version does not know (9999)"
            in ended.stderr
        )

    def test_it_waits_for_a_database_that_is_away_at_its_start(
        self, environ: dict[str, str], free_port: Callable[[], int]
    ):
        url = f"postgresql://ragkv@127.0.0.1:{free_port()}/ragkv"
        with subprocess.Popen(COMMAND, env=environ | {"RAGKV_DATABASE_URL": url}, stderr=subprocess.PIPE) as worker:
            assert any(b"next attempt in 2 s: the database cannot be opened" in line for line in worker.stderr)
            worker.terminate()

    def test_it_stops_when_told(self, parts: Parts, worker: WorkerProcess):
        """The fixture stops it once more, which does no harm."""
        wait_until(parts.heartbeats.read, seconds=120)
        worker.stop()

        assert worker.pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def _row(parts: Parts, document_id: str) -> DocumentRow:
    with parts.database.reading() as session:
        return session.get_one(DocumentRow, document_id)


def _kv_keys(parts: Parts, document_id: str) -> set[str]:
    with parts.database.reading() as session:
        return set(session.scalars(keys_of_documents([document_id])))


def _sha256(parts: Parts, document_id: str) -> str:
    return _row(parts, document_id).sha256


def _kill(parts: Parts, document_id: str, times: int) -> None:
    """Workers take the document and are seen no more."""
    for i in range(times):
        assert Lease.take(parts.database, document_id, f"worker {i}")
        _lapse(parts, document_id)


def _lapse(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).where(DocumentRow.id == document_id).values(lease_until=utc_now() - LEASE))
