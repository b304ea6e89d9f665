"""Two hosts with a folder each, one database and one bucket: what one makes the other answers with."""

import asyncio
import io
import os
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from api.background import sweeping_disk
from bench.remote import RemoteBench, RemoteRow
from bench.serving.engine import contexts_of
from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.answer.question import Answer, Question
from ragkv.answer.recompute import Recompute
from ragkv.errors import OutOfSpace
from ragkv.ids import utc_now
from ragkv.kv.remote import ObjectStore
from ragkv.object_store import StoreLocation
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.kv_disk import DISK, REMOTE, lose_object
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, DocumentRow, KVEntryRow
from ragkv.service.base.tenants import collection_ref, ensure_collection
from ragkv.service.checks.check import WHILE_STOPPED
from ragkv.service.checks.cleaning import collect_garbage, remove_unnamed_files
from ragkv.service.checks.fsck import examine, repair
from ragkv.service.collections.collections import make_collection
from ragkv.service.documents.documents import delete_document, document_view, store_document
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.eviction import evict, evict_entries
from ragkv.service.kv_admin.rule_statements import BACK_AFTER
from ragkv.service.kv_admin.rules import KVRulePatch, change_rule
from ragkv.service.kv_admin.upload import Uploader, has_room_on_disk
from ragkv.service.kv_admin.usage import overview, rebuild_document
from ragkv.service.kv_admin.verify import verify
from ragkv.service.kv_admin.warm import warm
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import ingest_over, lend_models
from tests.support.documents import LONG, kv_files, use
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import client_of, wait_until
from workers.repeating import Uploads
from workers.sweep import Sweeper

Hosts = tuple[Parts, IngestParts, Parts]


@pytest.fixture
def shared(settings: Settings, migrated_url: str, s3_place: StoreLocation) -> Settings:
    """Settings that both hosts share but the data folder."""
    return msgspec.structs.replace(
        settings,
        database_url=migrated_url,
        kv_remote=s3_place.url,
        kv_remote_endpoint=s3_place.endpoint,
        kv_remote_region=s3_place.region,
        kv_remote_access_key=s3_place.access_key,
        kv_remote_secret_key=s3_place.secret_key,
        kv_wait_ms=10_000.0,
    )


def host(settings: Settings, loaded: IngestParts, folder: Path) -> Parts:
    settings = msgspec.structs.replace(settings, data_dir=folder)
    engine = EchoEngine(settings)
    engine.stitches = engine.started = True
    parts = Parts(settings, engine)
    lend_models(parts, loaded)
    ensure_collection(parts.database)
    return parts


@pytest.fixture
def hosts(shared: Settings, redis_server: EmbeddedRedis, loaded: IngestParts, tmp_path: Path) -> Iterator[Hosts]:
    """A worker's host with its ingestion, and another that answers. They share uploaded files, and no KV."""
    for folder in ("files", "a", "b"):
        (tmp_path / folder).mkdir()
    for folder in ("a", "b"):
        (tmp_path / folder / "files").symlink_to(tmp_path / "files")
    shared = msgspec.structs.replace(shared, redis_url=f"unix://{shared.redis_socket}")
    with closing(host(shared, loaded, tmp_path / "a")) as worker, closing(host(shared, loaded, tmp_path / "b")) as api:
        yield worker, ingest_over(worker, loaded), api


def ready(ingest: IngestParts, body: bytes = LONG, name: str = "engines.md") -> str:
    parts = ingest.parts
    document_id = store_document(parts.default_collection, name, io.BytesIO(body), parts.intake).document_id
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    return document_id


def ask(parts: Parts, times: int = 1, top_k: int | None = None) -> list[Answer]:
    """The same question so many times at once."""
    ref = parts.default_collection

    async def one() -> Answer:
        asked = "Where stood engine number 7?"
        question = Question(ref.tenant_id, ref.collection_id, asked, top_k=top_k, hops=1, answer_cache=False)
        *_, answer = [event async for event in parts.answerer.stream(question)]
        assert isinstance(answer, Answer)
        return answer

    async def together() -> list[Answer]:
        return await asyncio.gather(*(one() for _ in range(times)))

    return asyncio.run(together())


def tiers(parts: Parts) -> dict[str, str]:
    with parts.database.reading() as session:
        return dict(session.execute(select(KVEntryRow.key, KVEntryRow.tier)).all())


def allow(parts: Parts, num_bytes: int) -> None:
    """Another limit on the KV of this host's disk."""
    parts.settings = msgspec.structs.replace(parts.settings, max_kv_bytes=num_bytes)
    for name in ("kv_disk", "promoter", "answerer"):
        parts.__dict__.pop(name, None)


def on_disk(parts: Parts) -> int:
    return sum(file.num_bytes for file in parts.kv_store.files())


def objects(parts: Parts) -> set[str]:
    assert parts.kv_remote is not None
    prefix = parts.keys_of(parts.default_collection.tenant_id).prefix()
    return {each.key for each in parts.kv_remote.objects()} - {prefix}


def test_what_one_host_makes_another_with_an_empty_disk_answers_with(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    assert set(tiers(worker).values()) == {DISK}
    assert Uploader(worker).upload_due().failed == 0
    assert set(tiers(worker).values()) == {REMOTE}
    assert objects(worker) == kv_files(worker)

    there, elsewhere = ask(worker)[0], ask(api)[0]
    assert elsewhere.usage == there.usage
    assert elsewhere.usage.stitched > 0
    assert elsewhere.usage.failed_chunks == 0
    assert 0 < len(kv_files(api)) <= len(kv_files(worker))


def test_an_answer_says_that_its_kv_came_from_the_object_store(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    first, second = ask(api)[0], ask(api)[0]
    assert {one.source for one in first.kv} == {"remote"}
    assert {one.source for one in second.kv} <= {"host", "disk"}
    tiers_of = overview(
        api.default_collection.tenant_id, api.database, api.settings, api.kv_store, api.default_collection
    ).tiers
    assert tiers_of.remote is not None
    assert (tiers_of.disk.files, tiers_of.remote.files) == (len(kv_files(api)), len(kv_files(worker)))


def test_a_host_is_warmed_before_its_first_question(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    owner = KVOwner(api.default_collection.tenant_id)
    *_, done = warm(owner, api)
    assert (done.files, done.loaded, done.missing) == (done.total, done.total, 0)
    assert kv_files(api) == kv_files(worker)
    assert done.bytes == on_disk(worker)
    *_, again = warm(owner, api)
    assert (again.files, again.loaded) == (done.total, 0)

    api.kv_store.drop(file.key for file in list(api.kv_store.files()))
    allow(api, on_disk(worker) // 2)
    *_, half = warm(owner, api)
    assert half.is_full
    assert 0 < half.files < done.total
    assert on_disk(api) - api.settings.max_kv_bytes < done.bytes // done.total


def test_a_host_without_a_worker_keeps_to_its_limit_from_its_start_on(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    *_, _ = warm(KVOwner(api.default_collection.tenant_id), api)
    allow(api, on_disk(api) // 2)
    with client_of(api):
        wait_until(lambda: on_disk(api) <= api.settings.max_kv_bytes)
    assert on_disk(api) > 0


def test_a_deleted_document_leaves_no_object(hosts: Hosts):
    worker, ingest, api = hosts
    document_id = ready(ingest)
    Uploader(worker).upload_due()
    delete_document(api.default_collection.tenant_id, document_id, api.removal)
    assert objects(worker) == set()
    assert tiers(worker) == {}


@pytest.fixture
def with_leftovers(hosts: Hosts) -> Parts:
    """A host with KV of a document that was deleted on another host the day before, and a load that was cut off."""
    worker, ingest, api = hosts
    tenant_id = api.default_collection.tenant_id
    document_id = ready(ingest)
    Uploader(worker).upload_due()
    *_, _ = warm(KVOwner(tenant_id), api)
    delete_document(tenant_id, document_id, worker.removal)
    assert kv_files(api)
    some = api.kv_store.path(next(iter(kv_files(api))))
    some.with_name(f".{some.name}.1.partial").write_bytes(b"x")
    for path in files_in(api.kv_store.folder):
        os.utime(path, (time.time() - 90_000,) * 2)
    return api


def files_in(folder: Path) -> list[Path]:
    return list(folder.glob("??/*"))


def test_a_host_without_a_worker_starts_with_no_kv_that_nothing_names(with_leftovers: Parts):
    api = with_leftovers
    with client_of(api):
        wait_until(lambda: len(files_in(api.kv_store.folder)) == 1)
    assert kv_files(api) == set()
    assert api.keys_of(api.default_collection.tenant_id).prefix() in api.kv_store


def test_it_removes_such_kv_while_it_runs(with_leftovers: Parts):
    api = with_leftovers

    async def serve() -> None:
        async with sweeping_disk(api.database, api.settings, api.files, api.kv_store, api.prefixes, interval_s=0.01)(
            None
        ):  # type: ignore[arg-type]
            while len(files_in(api.kv_store.folder)) > 1:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(serve(), 20))
    assert kv_files(api) == set()


def test_with_another_database_it_removes_none(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    worker, ingest, _ = hosts
    ready(ingest)
    stored = kv_files(worker)
    monkeypatch.setattr("ragkv.service.checks.cleaning.FILE_GRACE", timedelta(0))
    other = Parts(msgspec.structs.replace(worker.settings, database_url=f"sqlite:///{tmp_path / 'new.sqlite3'}"))
    lend_models(other, ingest)
    other.prepare_database()
    with closing(other):
        remove_unnamed_files(other.database, other.files, other.kv_store, other.prefixes)
    assert stored == kv_files(worker) != set()


def test_a_store_that_is_away_costs_ingestion_nothing_and_is_made_up_for(hosts: Hosts, free_port):
    worker, ingest, _ = hosts
    remote = worker.kv_remote
    away = StoreLocation("s3://bucket/x", f"http://127.0.0.1:{free_port()}", "us-east-1", "key", "secret")
    worker.kv_remote = ObjectStore(away, lambda: "a service")
    document_id = ready(ingest)
    assert Uploader(worker).upload_due().failed == len(kv_files(worker))
    assert set(tiers(worker).values()) == {DISK}
    assert document_view(worker.default_collection.tenant_id, document_id, worker.database).status == Status.READY
    worker.kv_remote = remote
    assert Uploader(worker).upload_due().files == len(kv_files(worker)) == len(objects(worker))


def test_uploads_go_on_after_an_error_that_nobody_foresaw(hosts: Hosts, monkeypatch: pytest.MonkeyPatch):
    worker, ingest, _ = hosts
    ready(ingest)
    upload_due = Uploader.upload_due

    def fail_once(uploader: Uploader) -> Any:
        monkeypatch.setattr(Uploader, "upload_due", upload_due)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Uploader, "upload_due", fail_once)
    monkeypatch.setattr("workers.repeating.UPLOAD_EVERY_S", 0.01)
    uploads = Uploads(worker)
    uploads.start()

    wait_until(lambda: objects(worker) == kv_files(worker) != set())
    uploads.stop()


def test_kv_that_another_host_evicted_makes_room_once_it_is_old_enough_and_the_prefix_stays(hosts: Hosts):
    worker, ingest, api = hosts
    owner = KVOwner(api.default_collection.tenant_id)
    ready(ingest)
    Uploader(worker).upload_due()
    *_, _ = warm(owner, api)
    evict(owner, worker.database, worker.kv_store, worker.worker_counters)
    held, limit = kv_files(api), on_disk(api) // 2
    allow(api, limit)
    with pytest.raises(OutOfSpace):
        api.kv_disk.make_room(0)
    assert kv_files(api) == held, "a worker may be about to record it"

    for path in files_in(api.kv_store.folder):
        os.utime(path, (time.time() - 3700,) * 2)
    allow(api, limit)
    api.kv_disk.make_room(0)
    assert kv_files(api) < held and on_disk(api) <= limit
    assert api.keys_of(owner.tenant_id).prefix() in api.kv_store


def test_objects_of_kv_that_was_evicted_while_the_store_was_away_are_found_and_removed(
    hosts: Hosts, free_port, monkeypatch: pytest.MonkeyPatch
):
    worker, ingest, _ = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    left, remote = objects(worker), worker.kv_store.remote
    away = StoreLocation("s3://bucket/x", f"http://127.0.0.1:{free_port()}", "us-east-1", "key", "secret")
    worker.kv_store.remote = ObjectStore(away, lambda: "a service")
    evict(KVOwner(worker.default_collection.tenant_id), worker.database, worker.kv_store, worker.worker_counters)
    worker.kv_store.remote = remote
    found = {finding.check: set(finding.found) for finding in examine(WHILE_STOPPED, worker) if finding.found}
    assert found == {"unnamed_objects": left}

    monkeypatch.setattr("ragkv.service.checks.cleaning.FILE_GRACE", timedelta(0))
    collect_garbage(worker)
    assert objects(worker) == set()
    assert worker.kv_remote is not None
    assert worker.kv_remote.has(worker.keys_of(worker.default_collection.tenant_id).prefix())


def test_with_a_full_disk_copies_go_and_documents_stay_ready(hosts: Hosts):
    worker, ingest, api = hosts
    document_id = ready(ingest)
    Uploader(worker).upload_due()
    before, limit = kv_files(worker), on_disk(worker) // 2
    allow(worker, limit)
    allow(api, limit)
    worker.kv_disk.make_room(0)
    assert 0 < len(kv_files(worker)) < len(before) / 2
    assert document_view(worker.default_collection.tenant_id, document_id, worker.database).status == Status.READY
    for parts in (worker, api):
        assert ask(parts, top_k=4)[0].usage.failed_chunks == 0
        ask(parts, top_k=100)
        assert on_disk(parts) <= limit
    assert objects(worker) == before


def test_nothing_is_dropped_that_has_no_copy(hosts: Hosts):
    worker, ingest, _ = hosts
    ready(ingest)
    before = kv_files(worker)
    allow(worker, 1)
    with pytest.raises(OutOfSpace, match="RAGKV_KV_REMOTE"):
        worker.kv_disk.make_room(0)
    assert kv_files(worker) == before


def test_a_full_disk_whose_files_may_not_go_keeps_no_worker_from_evicting(hosts: Hosts):
    worker, ingest, _ = hosts
    ready(ingest)
    worker.settings = msgspec.structs.replace(worker.settings, max_tenant_kv_bytes=1)
    allow(worker, 1)
    Sweeper(worker).sweep()
    assert kv_files(worker) == set()


def test_a_full_disk_whose_files_may_not_go_is_not_searched_at_every_question(hosts: Hosts, monkeypatch):
    """The object store is away, say, for hours."""
    worker, ingest, _ = hosts
    ready(ingest)
    allow(worker, on_disk(worker))
    looks = []
    files = worker.kv_store.files
    monkeypatch.setattr(worker.kv_store, "files", lambda: looks.append(1) or files())
    for _ in range(10):
        with pytest.raises(OutOfSpace):
            worker.kv_disk.make_room(1)
    assert len(looks) <= 2
    Uploader(worker).upload_due()
    worker.kv_disk.copied()
    worker.kv_disk.make_room(1)
    with pytest.raises(OutOfSpace, match="at once, more than"):
        worker.kv_disk.make_room(worker.settings.max_kv_bytes + 1)
    assert kv_files(worker), "what cannot be fitted in drops nothing"


def test_new_kv_takes_the_place_of_copies_and_waits_for_none(hosts: Hosts):
    """What was not uploaded yet is, once the disk needs its room."""
    worker, ingest, _ = hosts
    ready(ingest)
    allow(worker, on_disk(worker) + 2**20)
    ready(ingest, b"# Bridges\n\n" + LONG.replace(b"ngine", b"ridge"), "bridges.md")
    assert objects(worker)
    assert on_disk(worker) <= worker.settings.max_kv_bytes


def test_a_document_larger_than_the_disk_is_ready_though_some_of_its_files_went(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
):
    worker, ingest, _ = hosts
    tenant_id = worker.default_collection.tenant_id
    first = ready(ingest)
    limit = on_disk(worker) // 2
    delete_document(tenant_id, first, worker.removal)
    allow(worker, limit)
    monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
    document_id = ready(ingest)

    shown = document_view(tenant_id, document_id, worker.database)
    assert (shown.status, shown.kv_evicted) == (Status.READY, False)
    assert kv_files(worker) < set(tiers(worker))


def test_a_rebuild_computes_nothing_that_the_object_store_has(hosts: Hosts):
    worker, ingest, _ = hosts
    tenant_id = worker.default_collection.tenant_id
    document_id = ready(ingest)
    Uploader(worker).upload_due()
    evicted, *copied = sorted(kv_files(worker))
    worker.kv_store.drop(copied)
    evict_entries([(evicted, 0)], worker.database, worker.kv_store)
    rebuild_document(tenant_id, document_id, worker.database, worker.queue)

    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    assert document_view(tenant_id, document_id, worker.database).status == Status.READY
    assert kv_files(worker) == {evicted}
    assert set(tiers(worker)) == {evicted, *copied}


def test_a_damaged_object_is_recomputed_and_uploaded_again(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    assert worker.kv_remote is not None and api.kv_remote is not None
    (worker.settings.data_dir / "junk").write_bytes(b"junk")
    for key in objects(worker):
        worker.kv_remote.put(key, worker.settings.data_dir / "junk")
    broken = ask(api)[0]
    assert broken.usage.failed_chunks > 0
    assert broken.text == "Ada Lovelace wrote it."
    lost = {key for key, tier in tiers(worker).items() if tier == DISK}
    assert len(lost) == broken.usage.failed_chunks
    Uploader(worker).upload_due()
    assert ask(api)[0].usage.failed_chunks == 0


def test_a_damaged_prefix_is_uploaded_again_though_no_other_kv_waits(hosts: Hosts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ragkv.service.kv_admin.upload.PREFIXES_S", 0.0)
    worker, ingest, api = hosts
    ready(ingest)
    uploader = Uploader(worker)
    uploader.upload_due()
    prefix = worker.keys_of(worker.default_collection.tenant_id).prefix()
    assert worker.kv_remote is not None
    (worker.settings.data_dir / "junk").write_bytes(b"junk")
    worker.kv_remote.put(prefix, worker.settings.data_dir / "junk")
    ask(api)
    assert prefix not in api.kv_store and not worker.kv_remote.has(prefix)

    assert uploader.upload_due().files == 0
    ask(api)
    assert prefix in api.kv_store


def test_what_was_left_or_lost_in_the_bucket_is_found_and_mended(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    assert worker.kv_remote is not None
    lost, kept = sorted(objects(worker))[:2]
    worker.kv_remote.put("f" * 64, worker.kv_store.path(kept))
    worker.kv_remote.delete([lost])

    found = {finding.check: finding.found for finding in examine(WHILE_STOPPED, worker) if finding.found}
    assert found == {"kv_without_object": [lost], "unnamed_objects": ["f" * 64]}
    assert [finding.found for finding in repair(WHILE_STOPPED, worker) if finding.mended] == [[lost], ["f" * 64]]
    Uploader(worker).upload_due()
    assert objects(worker) == kv_files(worker)
    assert not any(finding.found for finding in examine(WHILE_STOPPED, api))


def test_kv_whose_object_was_only_away_for_a_while_is_recorded_again(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    lost, *others = sorted(objects(worker))
    lose_object(worker.database, lost)
    assert "unrecorded_copies" not in {finding.check for finding in examine(WHILE_STOPPED, worker) if finding.found}

    mended = {finding.check: finding.found for finding in repair(WHILE_STOPPED, api) if finding.mended}
    assert mended["unrecorded_copies"] == [lost]
    assert tiers(worker) == dict.fromkeys([lost, *others], REMOTE)


def test_a_store_without_any_object_costs_no_record(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    before = tiers(worker)
    assert worker.kv_remote is not None
    worker.kv_remote.delete([found.key for found in worker.kv_remote.objects()])

    mended = {finding.check: set(finding.found) for finding in repair(WHILE_STOPPED, api) if finding.mended}
    assert mended.pop("kv_without_object") == set(before)
    assert "kv_without_file" not in mended
    assert tiers(worker) == dict.fromkeys(before, DISK)


def test_checks_take_no_kv_for_lost_that_may_be_on_another_hosts_disk_alone(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    uploaded = kv_files(worker)
    young = ready(ingest, b"# Bridges\n\n" + LONG.replace(b"ngine", b"ridge"), "bridges.md")
    alone = kv_files(worker) - uploaded
    assert "kv_without_file" not in {finding.check for finding in examine(WHILE_STOPPED, api) if finding.found}

    assert worker.kv_remote is not None and alone
    lost = min(uploaded)
    worker.kv_remote.delete([lost])
    mended = {finding.check: finding.found for finding in repair(WHILE_STOPPED, api) if finding.mended}
    assert mended["kv_without_file"] == [lost]
    assert {key for key, tier in tiers(worker).items() if tier == DISK} == alone
    with worker.database.reading() as session:
        assert not session.get_one(DocumentRow, young).kv_evicted


def test_verifying_on_a_host_without_files_reads_the_objects(hosts: Hosts):
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    assert worker.kv_remote is not None
    damaged, missing, *_ = sorted(objects(worker))
    (worker.settings.data_dir / "junk").write_bytes(b"junk")
    worker.kv_remote.put(damaged, worker.settings.data_dir / "junk")
    worker.kv_remote.delete([missing])
    *_, verified = verify(
        KVOwner(api.default_collection.tenant_id), api.database, api.kv_store, api.kv_remote, api.layout
    )
    assert (verified.checked, verified.damaged, verified.missing, verified.unusable) == (len(kv_files(worker)), 1, 1, 0)


def test_verifying_forgets_nothing_that_may_be_on_another_hosts_disk_alone(hosts: Hosts):
    worker, ingest, api = hosts
    owner = KVOwner(worker.default_collection.tenant_id)
    ready(ingest)
    Uploader(worker).upload_due()
    young = ready(ingest, b"# Bridges\n\n" + LONG.replace(b"ngine", b"ridge"), "bridges.md")
    alone = {key for key, tier in tiers(worker).items() if tier == DISK}
    *_, verified = verify(owner, api.database, api.kv_store, api.kv_remote, api.layout)
    assert (verified.missing, verified.unusable) == (0, len(alone))
    assert document_view(owner.tenant_id, young, worker.database).status == Status.READY

    damaged = worker.kv_store.path(min(alone))
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"gremlins")
    *_, verified = verify(owner, worker.database, worker.kv_store, worker.kv_remote, worker.layout)
    assert (verified.damaged, verified.unusable, verified.documents) == (1, 0, [young])


def test_questions_at_once_about_kv_in_the_object_store_load_it_once(hosts: Hosts):
    """As `ragkv bench remote` measures it."""
    worker, ingest, api = hosts
    ready(ingest)
    Uploader(worker).upload_due()
    ref = api.default_collection
    contexts = contexts_of(api.source.ready_chunks(ref.tenant_id, ref.collection_id), 2, 150, 4, api.prompts)
    assert api.promoter is not None
    assert isinstance(api.engine, EchoEngine)
    api.promoter.cost.computed(1_000, 1_000.0)  # by a model so slow that waiting pays on any machine
    bench = RemoteBench(api, api.promoter, Recompute("none", 0.0, 16), contexts, 4)

    async def measured() -> list[RemoteRow]:
        return [row async for row in bench.measure(32, lambda mode: None)]

    full, disk, remote, at_once = asyncio.run(measured())
    chunks = len(contexts[0].passages)
    assert (full.loads, full.questions, full.failed) == (0, 2, 0)
    assert (disk.late, remote.late, remote.failed, remote.same) == (0, 0, 0, 2)
    assert remote.loads == disk.loads + 2 + sum(len(context.passages) for context in contexts)
    assert (at_once.questions, at_once.loads) == (32, chunks + 1)


class TestWriteRules:
    """When KV is uploaded is the collection's to say."""

    @pytest.fixture
    def uploader(self, hosts: Hosts) -> Uploader:
        ready(hosts[1])
        return Uploader(hosts[0])

    def rule(self, hosts: Hosts, **patch: Any) -> None:
        ref = hosts[0].default_collection
        change_rule(KVOwner(ref.tenant_id, ref.collection_id), KVRulePatch(**patch), hosts[0])

    def test_what_is_young_is_uploaded_later(self, hosts: Hosts, uploader: Uploader):
        self.rule(hosts, write="back")
        assert uploader.upload_due().files == 0
        with hosts[0].database.writing() as session:
            session.execute(update(KVEntryRow).values(created_at=utc_now() - BACK_AFTER))
        assert uploader.upload_due().files == len(objects(hosts[0])) == len(kv_files(hosts[0]))

    def test_what_answers_have_used_is_uploaded_and_nothing_else(self, hosts: Hosts, uploader: Uploader):
        self.rule(hosts, write="nth_use", uses=2)
        with hosts[0].database.reading() as session:
            hot, lukewarm = session.scalars(select(ChunkRow).order_by(ChunkRow.ordinal).limit(2)).all()
        for chunk_ids in ([hot.id, lukewarm.id], [hot.id]):
            assert uploader.upload_due().files == 0
            use(hosts[0], *chunk_ids)
        assert uploader.upload_due().files == 1
        assert objects(hosts[0]) == {hot.kv_key}

    def test_whatever_the_rule_it_goes_there_before_the_disk_needs_its_room(self, hosts: Hosts, uploader: Uploader):
        self.rule(hosts, write="nth_use")
        allow(hosts[0], on_disk(hosts[0]))
        assert has_room_on_disk(on_disk(hosts[0]) // 2, hosts[0])
        assert len(objects(hosts[0])) > len(kv_files(hosts[0]))

    def test_kv_of_two_collections_follows_the_one_that_wants_it_there_first(self, hosts: Hosts, uploader: Uploader):
        self.rule(hosts, write="nth_use")
        worker, ingest, _ = hosts
        tenant_id = worker.default_collection.tenant_id
        papers = make_collection(tenant_id, "papers", worker.database).id
        ref = collection_ref(tenant_id, papers, worker.database)
        document_id = store_document(ref, "engines.md", io.BytesIO(LONG), worker.intake).document_id
        assert uploader.upload_due().files == 0
        ingest_document(document_id, ingest)
        assert uploader.upload_due().files == len(kv_files(worker))
