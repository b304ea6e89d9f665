"""KV that is shown, evicted, pinned, rebuilt and verified, over HTTP and by the sweep; with real files."""

import os
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.answer import service
from ragkv.answer.planner import Planner
from ragkv.errors import Unavailable
from ragkv.files_io import is_resident, resident_bytes
from ragkv.ids import utc_now
from ragkv.kv.file import load_kv
from ragkv.kv.layout import LAYOUT_VERSION
from ragkv.kv.store import KVStore
from ragkv.service.base.tables import ChunkRow, JobRow, KVEntryRow
from ragkv.service.checks.cleaning import collect_garbage
from ragkv.service.documents.documents import accept_document
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.eviction import NOTHING, evict, make_room
from ragkv.service.kv_admin.verify import verify as verify_kv
from ragkv.service.parts import Parts
from ragkv.service.questions.journal import KVUse
from tests.conftest import ingest_over, lend_models
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import Client, assert_problem, events_of, upload
from tests.support.page_cache import kept

GRACE = b"# Grace Hopper\n\nGrace Hopper wrote the first compiler, and found the first bug.\n"


@pytest.fixture
def other(client: Client, ingest: IngestParts) -> str:
    """Another document that is ready."""
    document_id = str(upload(client, GRACE, "grace.md").json()["id"])
    ingest_document(document_id, ingest)
    return document_id


def document(client: Client, document_id: str) -> dict[str, Any]:
    return dict(client.get(f"/v1/documents/{document_id}").json())


def held(client: Client, document_id: str) -> dict[str, Any]:
    return dict(client.get(f"/v1/documents/{document_id}/kv").json())


def files_of(parts: Parts, document_id: str) -> list[Path]:
    with parts.database.reading() as session:
        keys = session.scalars(select(ChunkRow.kv_key).where(ChunkRow.document_id == document_id)).all()
    return [parts.kv_store.path(key) for key in keys if key]


def limit(parts: Parts, max_kv_bytes: int) -> None:
    parts.settings = msgspec.structs.replace(parts.settings, max_kv_bytes=max_kv_bytes)


def verify(client: Client, path: str) -> dict[str, Any]:
    response = client.post(f"{path}/verify")
    assert response.headers["content-type"].startswith("text/event-stream")
    name, found = list(events_of(response.text))[-1]
    assert name == "done"
    return dict(found)


def test_questions_are_prefilled_while_the_disk_of_kv_hangs(
    client: Client, answerable: str, monkeypatch: pytest.MonkeyPatch
):
    """More of them than threads that hang."""
    answers_again = threading.Event()
    monkeypatch.setattr(service, "LOOK_UP_S", 0.2)
    monkeypatch.setattr(Planner, "locate", lambda *_: answers_again.wait(60))
    try:
        answers = [client.post("/v1/ask", json={"question": "Who?"}).json() for _ in range(service.THREADS + 2)]
    finally:
        answers_again.set()
    assert {(answer["usage"]["stitched"], answer["usage"]["recomputed"]) for answer in answers} == {(0, 0)}
    assert all(answer["passages"] for answer in answers)


def test_after_an_upgrade_to_another_layout_all_kv_is_made_again(
    client: Client, parts: Parts, ingest: IngestParts, loaded: IngestParts, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as earlier:
        for module in ("file", "key", "layout"):
            earlier.setattr(f"ragkv.kv.{module}.LAYOUT_VERSION", LAYOUT_VERSION - 1)
        document_id = str(upload(client, GRACE, "grace.md").json()["id"])
        ingest_document(document_id, ingest)
        before = {*files_of(parts, document_id), *map(parts.kv_store.path, parts.prefixes())}

    with closing(Parts(parts.settings, parts.engine)) as upgraded:
        lend_models(upgraded, loaded)
        assert upgraded.refresh_outdated() == 1
        ingest_document(document_id, ingest_over(upgraded, loaded))
        after = {*files_of(upgraded, document_id), *map(upgraded.kv_store.path, upgraded.prefixes())}

        assert after and not before & after
        assert all(load_kv(path).num_tokens for path in after)


class TestLookup:
    @pytest.mark.parametrize("chunks", [1, 3])
    def test_a_question_looks_up_each_chunk_and_the_prefix_once(
        self, client: Client, answerable: str, other: str, engine: EchoEngine, monkeypatch, chunks: int
    ):
        engine.stitches = True
        looks = Counter[str]()
        look = KVStore.__contains__

        def counting(store: KVStore, key: str) -> bool:
            looks[key] += 1
            return look(store, key)

        monkeypatch.setattr(KVStore, "__contains__", counting)
        answer = client.post("/v1/ask", json={"question": "Who wrote the first compiler?", "top_k": chunks}).json()

        assert answer["usage"]["stitched"] > 0
        assert len(looks) == len(answer["passages"]) + 1
        assert set(looks.values()) == {1}


class TestUsage:
    def test_bytes_are_shown_by_tier_and_collection(self, client: Client, answerable: str, other: str, parts: Parts):
        client.post("/v1/collections", json={"name": "empty"})
        files = files_of(parts, answerable) + files_of(parts, other)
        with kept(files):
            seen = client.get("/v1/kv").json()

        disk = seen["tiers"]["disk"]
        assert (disk["files"], disk["bytes"]) == (len(files), sum(path.stat().st_size for path in files))
        assert seen["tiers"]["host"]["bytes"] == disk["bytes"], "all of them lie in memory"
        device = seen["tiers"]["device"]
        assert device["capacity_bytes"] == 2 * 2**30
        assert device["used_bytes"] is None or device["used_bytes"] >= 0, (
            "an engine may have run in this process before"
        )
        assert seen["limit_bytes"] > disk["bytes"], "by default half of what there is room for"
        assert [(one["name"], one["files"]) for one in seen["collections"]] == [("default", len(files)), ("empty", 0)]

        files[0].unlink()
        assert client.get("/v1/kv").json()["tiers"]["disk"]["files"] == len(files) - 1

    def test_collections_come_a_page_at_a_time(self, client: Client, answerable: str):
        for name in ("a", "z"):
            client.post("/v1/collections", json={"name": name})
        first = client.get("/v1/kv", params={"limit": 2}).json()
        second = client.get("/v1/kv", params={"limit": 2, "cursor": first["next"]}).json()

        pages = [[(one["name"], one["files"] > 0) for one in page["collections"]] for page in (first, second)]
        assert pages == [[("a", False), ("default", True)], [("z", False)]]
        assert (second["next"], second["tiers"]["disk"]) == (None, first["tiers"]["disk"])
        for cursor in ("x", "\x00", "WyJhIiwiYiJd"):
            assert_problem(client.get("/v1/kv", params={"cursor": cursor}), 422, "cursor")
        for limit in (0, 201, "x"):
            assert_problem(client.get("/v1/kv", params={"limit": limit}), 400)

    def test_a_document_says_what_is_kept_of_it(self, client: Client, answerable: str):
        seen = held(client, answerable)

        assert seen["files"] == seen["chunks"] == seen["stored_chunks"] > 0
        assert (seen["pinned"], seen["evicted_documents"]) == (False, 0)

    def test_what_the_kernel_holds_of_a_file_is_seen(self, tmp_path: Path):
        path = tmp_path / "file"
        path.write_bytes(b"x" * 10_000)

        with kept([path]):
            assert (resident_bytes(path), is_resident(path)) == (10_000, True)
        assert (resident_bytes(tmp_path / "none"), is_resident(tmp_path / "none")) == (0, False)
        (tmp_path / "empty").touch()
        assert resident_bytes(tmp_path / "empty") == 0


class TestEviction:
    def test_an_evicted_document_answers_and_is_left_alone_until_it_is_rebuilt(
        self, client: Client, answerable: str, parts: Parts, ingest: IngestParts
    ):
        files = files_of(parts, answerable)
        freed = client.delete(f"/v1/documents/{answerable}/kv").json()

        assert freed["files"] == len(files) and freed["bytes"] > 0
        assert not any(path.exists() for path in files)
        shown = document(client, answerable)
        assert (shown["status"], shown["kv_evicted"]) == ("searchable", True)
        assert client.get(f"/v1/documents/{answerable}/chunks").json()["items"][0]["kv"]["state"] == "missing"
        assert client.post("/v1/ask", json={"question": "Who?"}).json()["usage"]["failed_chunks"] == len(files)
        assert stuck_ids(parts.database) == []
        assert ingest_document(answerable, ingest) == "skipped"

        rebuilt = client.post(f"/v1/documents/{answerable}/kv/rebuild")
        assert (rebuilt.status_code, rebuilt.json()["kv_evicted"]) == (202, False)
        assert stuck_ids(parts.database) == [answerable]
        assert ingest_document(answerable, ingest) == "ready"
        assert all(path.exists() for path in files)
        with parts.database.reading() as session:
            assert [job.kind for job in session.scalars(select(JobRow).order_by(JobRow.created_at))] == [
                "ingest",
                "rebuild",
            ]

    def test_those_who_watch_do_not_wait_for_it(self, client: Client, answerable: str):
        client.delete(f"/v1/documents/{answerable}/kv")

        for path in (f"documents/{answerable}/events", "collections/default/events?until=finished"):
            name, _ = list(events_of(client.get(f"/v1/{path}").text))[-1]
            assert name == "done"

    def test_what_another_document_uses_stays(self, client: Client, answerable: str, ingest: IngestParts):
        client.post("/v1/collections", json={"name": "twin"})
        ingest_document(upload(client, data={"collection": "twin"}).json()["id"], ingest)

        assert client.delete(f"/v1/documents/{answerable}/kv").json() == {"files": 0, "bytes": 0}
        assert document(client, answerable)["status"] == "ready"
        assert client.delete("/v1/collections/twin/kv").json()["files"] == 0

    def test_a_collection_is_evicted_and_rebuilt_as_a_whole(self, client: Client, answerable: str, other: str):
        assert client.delete("/v1/collections/default/kv").json()["files"] > 1
        assert client.get("/v1/collections/default/kv").json()["evicted_documents"] == 2

        assert client.post("/v1/collections/default/kv/rebuild").json() == {"documents": 2}
        assert client.post("/v1/collections/default/kv/rebuild").json() == {"documents": 0}

    def test_a_collection_is_rebuilt_where_files_are_lost(
        self, client: Client, answerable: str, other: str, parts: Parts, ingest: IngestParts
    ):
        lost = files_of(parts, other)[0]
        lost.unlink()

        assert client.post("/v1/collections/default/kv/rebuild").json() == {"documents": 1}
        assert client.post("/v1/collections/default/kv/rebuild").json() == {"documents": 0}
        assert ingest_document(other, ingest) == "ready"
        assert lost.exists()

    def test_a_document_that_is_being_read_is_left_to_it_and_one_that_failed_is_not_rebuilt(
        self, client: Client, ingest: IngestParts
    ):
        waiting = upload(client).json()["id"]
        assert client.post(f"/v1/documents/{waiting}/kv/rebuild").json()["status"] == "accepted"

        failed = upload(client, b"%PDF-1.7 broken", "broken.pdf").json()["id"]
        ingest_document(failed, ingest)
        assert_problem(client.post(f"/v1/documents/{failed}/kv/rebuild"), 409, "retry")


class TestRoom:
    def test_what_was_not_used_for_the_longest_time_goes_first(
        self, client: Client, answerable: str, other: str, parts: Parts
    ):
        use = KVUse(parts.database, write_every_s=0)
        with parts.database.reading() as session:
            use.note(session.scalars(select(ChunkRow.id).where(ChunkRow.document_id == answerable)))
        less_used = held(client, other)["bytes"]
        limit(parts, held(client, answerable)["bytes"])

        assert make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters).bytes == less_used
        assert document(client, other)["kv_evicted"]
        assert document(client, answerable)["status"] == "ready"
        assert make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters) == NOTHING

    @pytest.mark.parametrize("place", ["documents/{answerable}", "collections/default"])
    def test_what_is_pinned_stays(self, client: Client, answerable: str, other: str, parts: Parts, place: str):
        path = f"/v1/{place.format(answerable=answerable)}/kv"
        assert client.patch(path, json={"pinned": True}).json()["pinned"] is True
        limit(parts, 1)
        make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters)

        assert document(client, answerable)["status"] == "ready"
        assert document(client, other)["kv_evicted"] is place.startswith("documents")

        client.patch(path, json={"pinned": False})
        make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters)
        assert document(client, answerable)["kv_evicted"]

    def test_without_a_limit_nothing_goes(self, answerable: str, parts: Parts):
        assert make_room(parts.database, parts.settings, parts.kv_store, parts.worker_counters) == NOTHING

    def test_an_answer_is_a_use(self, client: Client, answerable: str, parts: Parts):
        before = held(client, answerable)["last_used_at"]
        client.post("/v1/ask", json={"question": "Who?"})
        parts.kv_use.write()

        assert held(client, answerable)["last_used_at"] > before

    def test_a_use_that_the_database_did_not_take_is_written_later(
        self, client: Client, answerable: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
    ):
        def away() -> None:
            raise Unavailable("away")

        before = held(client, answerable)["last_used_at"]
        client.post("/v1/ask", json={"question": "Who?"})
        with monkeypatch.context() as patched:
            patched.setattr(parts.database, "writing", away)
            with pytest.raises(Unavailable):
                parts.kv_use.write()
        parts.kv_use.write()

        assert held(client, answerable)["last_used_at"] > before


class TestVerification:
    def test_sound_files_stay(self, client: Client, answerable: str, parts: Parts):
        files = files_of(parts, answerable)
        for path in (f"/v1/documents/{answerable}/kv", "/v1/collections/default/kv", "/v1/kv"):
            found = verify(client, path)
            assert found["checked"] == found["total"] == len(files)
            assert (found["damaged"], found["missing"], found["documents"]) == (0, 0, [])
        assert document(client, answerable)["status"] == "ready"

    def test_damaged_files_are_removed_and_missing_ones_noticed(
        self, client: Client, answerable: str, other: str, parts: Parts, ingest: IngestParts
    ):
        damaged, missing = files_of(parts, answerable)[0], files_of(parts, other)[0]
        damaged.write_bytes(damaged.read_bytes()[:-8] + b"gremlins")
        missing.unlink()
        found = verify(client, "/v1/kv")

        assert (found["damaged"], found["missing"], found["unusable"]) == (1, 1, 0)
        assert found["documents"] == sorted([answerable, other])
        assert not damaged.exists()
        assert document(client, answerable)["kv_evicted"]

        assert client.post("/v1/collections/default/kv/rebuild").json() == {"documents": 2}
        for document_id in (answerable, other):
            assert ingest_document(document_id, ingest) == "ready"
        assert verify(client, "/v1/kv")["missing"] == 0

    def test_a_file_that_was_made_again_meanwhile_stays(self, answerable: str, parts: Parts, monkeypatch):
        monkeypatch.setattr("ragkv.service.base.long_work.SPEAK_EVERY_S", 0.0)
        [file, *_] = files_of(parts, answerable)
        content = file.read_bytes()
        file.write_bytes(content[:-8] + b"gremlins")

        verified = verify_kv(
            KVOwner(parts.default_collection.tenant_id), parts.database, parts.kv_store, parts.kv_remote, parts.layout
        )
        while not next(verified).damaged:
            pass
        file.write_bytes(content)
        *_, found = verified

        assert (found.damaged, found.missing, found.documents) == (0, 0, [])
        assert file.read_bytes() == content

    def test_kv_that_is_evicted_meanwhile_is_not_lost(self, answerable: str, other: str, parts: Parts, monkeypatch):
        monkeypatch.setattr("ragkv.service.base.long_work.SPEAK_EVERY_S", 0.0)
        owner = KVOwner(parts.default_collection.tenant_id)
        verified = verify_kv(owner, parts.database, parts.kv_store, parts.kv_remote, parts.layout)
        assert next(verified).checked == 1
        evict(owner, parts.database, parts.kv_store, parts.worker_counters)
        *_, last, found = verified

        assert last.missing == found.total - 1 > 0
        assert (found.damaged, found.missing, found.documents) == (0, 0, [])


class TestGarbage:
    def test_files_that_nothing_names_go_once_they_are_old(self, answerable: str, parts: Parts):
        kept = set(parts.kv_store.keys())
        stray, fresh = (parts.kv_store.path(sign * 64) for sign in "ab")
        partial = stray.with_name(f".{stray.name}.1.partial")
        for path in (stray, fresh, partial):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x" * 100)
        for path in (stray, partial, *(parts.kv_store.path(key) for key in kept)):
            os.utime(path, (time.time() - 90_000,) * 2)
        collect_garbage(parts)

        assert set(parts.kv_store.keys()) == kept | {"b" * 64}, "the prefix has no entry, and stays"
        assert not partial.exists()

    def test_entries_that_no_chunk_uses_go(self, answerable: str, parts: Parts):
        """As after a change of the instructions, which name all KV anew."""
        files = files_of(parts, answerable)
        with parts.database.writing() as session:
            session.execute(update(ChunkRow).values(kv_key="c" * 64))
        assert collect_garbage(parts) == NOTHING, "too young"

        with parts.database.writing() as session:
            session.execute(update(KVEntryRow).values(created_at=utc_now() - timedelta(hours=2)))
        assert collect_garbage(parts).files == len(files)
        assert not any(path.exists() for path in files)

    def test_they_go_also_while_documents_are_read(self, answerable: str, other: str, parts: Parts):
        """A tenant that always uploads keeps none of it either."""
        files = {*files_of(parts, answerable), *files_of(parts, other)}
        accept_document(parts.default_collection, "new.md", BytesIO(GRACE), parts.intake)
        with parts.database.writing() as session:
            session.execute(update(ChunkRow).values(kv_key="c" * 64))
            session.execute(update(KVEntryRow).values(created_at=utc_now() - timedelta(hours=2)))

        assert collect_garbage(parts).files == len(files) > 1
        assert not any(path.exists() for path in files)
