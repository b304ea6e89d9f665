"""Data sources: real folders, and a real server that speaks S3. On SQLite and on a real PostgreSQL."""

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import obstore
import pytest
from click.testing import CliRunner
from obstore.exceptions import GenericError
from sqlalchemy import select, update

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.cli.data_sources import data_sources
from ragkv.errors import Conflict, Forbidden, NotFound, Rejected, Unavailable
from ragkv.ids import utc_now
from ragkv.object_store import StoreLocation, opened
from ragkv.service.base.database import advisory_lock
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.status import Status
from ragkv.service.base.tables import AuditRow, CollectionRow, DataSourceRow, DocumentRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.data_sources import folder as folder_module
from ragkv.service.data_sources.bucket import BucketFiles
from ragkv.service.data_sources.data_sources import (
    MAX_DATA_SOURCES,
    DataSourceView,
    add_data_source,
    change_data_source,
    data_source_view,
    list_source_files,
    request_sync,
    retry_files,
)
from ragkv.service.data_sources.statements import LEASE, FileStatus
from ragkv.service.data_sources.sync_lease import SyncLease
from ragkv.service.data_sources.syncing import OUTAGES, SyncTally, sync_next, sync_now
from ragkv.service.documents.changes import amend_document, replace_document
from ragkv.service.documents.documents import accept_document, delete_document
from ragkv.service.documents.removal import uploads_lock
from ragkv.service.files.attachments import Attach, attach_files, detach_file, entry_of
from ragkv.service.files.uploads import keep_file
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support.over_http import Client
from tests.support.scans import encoded, picture
from tests.support.wrong_clock import clock_ahead
from workers.repeating import syncing


def on(tally: SyncTally) -> bool:
    return True


@dataclass
class Source:
    """A data source and what tests do with it."""

    parts: Parts
    view: DataSourceView
    write: Callable[[str, bytes], None]
    delete: Callable[[str], None]

    def sync(self) -> SyncTally:
        return sync_now(self.view.id, self.parts.intake, self.parts.removal, self.parts.worker_counters, on)

    def now(self) -> DataSourceView:
        return data_source_view(self.parts.default_collection.tenant_id, self.view.id, self.parts.database)

    def documents(self) -> dict[str, bytes]:
        """Bytes of the collection's documents, by name."""
        with self.parts.database.reading() as session:
            rows = session.scalars(select(DocumentRow)).all()
        return {row.name: self.parts.files.find(row.tenant_id, row.sha256).read_bytes() for row in rows}

    def contents(self) -> list[bytes]:
        """Bytes of the collection's documents, whatever their names."""
        return sorted(self.parts.files.find(row.tenant_id, row.sha256).read_bytes() for row in documents(self))

    def file_statuses(self) -> dict[str, tuple[str, str | None]]:
        tenant_id = self.parts.default_collection.tenant_id
        page = list_source_files(tenant_id, self.view.id, None, 200, None, self.parts.database)
        return {file.key: (file.status, file.error) for file in page.items}


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def connected(parts: Parts, location: str) -> DataSourceView:
    ref = parts.default_collection
    return add_data_source(ref.tenant_id, ref.collection_id, location, 15, parts.database, parts.settings)


def with_settings(parts: Parts, **changes: object) -> None:
    parts.settings = msgspec.structs.replace(parts.settings, **changes)


def folder_source(parts: Parts, inbox: Path) -> Source:
    with_settings(parts, data_sources_allowed=str(inbox.parent))

    def write(name: str, content: bytes) -> None:
        path = inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return Source(parts, connected(parts, str(inbox)), write, lambda name: (inbox / name).unlink())


@pytest.fixture
def folder(parts: Parts, redis_server: EmbeddedRedis, inbox: Path) -> Source:
    return folder_source(parts, inbox)


@pytest.fixture
def folder_on_postgres(
    settings: Settings, migrated_postgres_url: str, redis_server: EmbeddedRedis, loaded: IngestParts, inbox: Path
) -> Iterator[Source]:
    parts = Parts(msgspec.structs.replace(settings, database_url=migrated_postgres_url))
    lend_models(parts, loaded)
    yield folder_source(parts, inbox)
    parts.close()


@pytest.fixture(params=["folder", "folder_on_postgres"])
def folder_on_either(request: pytest.FixtureRequest) -> Source:
    found: Source = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def bucket(parts: Parts, redis_server: EmbeddedRedis, s3_place: StoreLocation) -> Source:
    with_settings(
        parts,
        data_sources_allowed=s3_place.url,
        data_sources_endpoint=s3_place.endpoint,
        data_sources_region=s3_place.region,
        data_sources_access_key=s3_place.access_key,
        data_sources_secret_key=s3_place.secret_key,
    )
    store = opened(s3_place)
    return Source(
        parts,
        connected(parts, s3_place.url),
        lambda name, content: obstore.put(store, name, content) and None,
        lambda name: obstore.delete(store, name),
    )


@pytest.fixture(params=["folder", "folder_on_postgres", "bucket"])
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare tests the wait for the clock of a file system: they write no file twice within its tick."""
    monkeypatch.setattr(folder_module, "SETTLED_S", 0.0)


def generation(source: Source) -> int:
    """Kept answers are of one generation of their collection."""
    with source.parts.database.reading() as session:
        return session.get_one(CollectionRow, source.view.collection_id).generation


def fill(source: Source, files: int) -> None:
    for number in range(files):
        source.write(f"sub/{number % 3}/{number}.md", f"# Note {number}\n\nText of note {number}.\n".encode())


def test_a_collection_is_kept_in_step(source: Source):
    """New, changed and deleted files; files that ingestion does not read; a file that cannot be read until it is
    mended."""
    fill(source, 20)
    source.write("film.mp4", b"\0\0\0\x18ftyp")
    source.write("empty.md", b"")
    first = source.sync()
    assert (first.listed, first.added, first.skipped, first.unreadable, first.error) == (22, 20, 1, 1, None)
    assert source.file_statuses()["empty.md"] == (FileStatus.UNREADABLE, "the file is empty")
    view = source.now()
    assert (view.files.waiting, view.files.unreadable, view.files.skipped) == (20, 1, 1)
    assert view.status == "synced"

    for number in range(5):
        source.write(f"sub/{number % 3}/{number}.md", f"# Changed {number}\n".encode())
        source.delete(f"sub/{(number + 5) % 3}/{number + 5}.md")
        source.write(f"new {number}.md", f"# New {number}\n".encode())
    source.write("empty.md", b"# Mended\n")
    second = source.sync()
    assert (second.added, second.changed, second.deleted, second.unreadable) == (6, 5, 5, 0)
    expected = {f"{number}.md": f"# Note {number}\n\nText of note {number}.\n".encode() for number in range(10, 20)}
    expected |= {f"{number}.md": f"# Changed {number}\n".encode() for number in range(5)}
    expected |= {f"new {number}.md": f"# New {number}\n".encode() for number in range(5)} | {"empty.md": b"# Mended\n"}
    assert source.documents() == expected

    third = source.sync()
    assert (third.unchanged, third.added, third.changed, third.deleted) == (21, 0, 0, 0)
    assert source.documents() == expected


def test_a_file_with_a_time_to_come_is_read_by_every_sync_and_kept_answers_stay(folder: Source, inbox: Path):
    folder.write("plan.md", b"# Plan\n\nThe bridge opens in May.\n")
    os.utime(inbox / "plan.md", (time.time() + 86_400,) * 2)
    folder.sync()
    before = generation(folder)
    assert (folder.sync().unchanged, generation(folder)) == (1, before)

    folder.write("plan.md", b"# Plan\n\nThe bridge opens in June.\n")
    assert folder.sync().changed == 1
    assert generation(folder) > before


def test_a_file_with_a_document_that_failed_is_read_again_once_it_changed_or_on_request(
    source: Source, ingest: IngestParts
):
    source.write("broken.pdf", b"no PDF at all")
    source.write("good.md", b"# Good\n\nA whole note.\n")
    source.sync()
    ingest.parts = source.parts
    for document in documents(source):
        ingest_document(document.id, ingest)
    assert (source.now().files.ready, source.now().files.failed) == (1, 1)
    with source.parts.database.writing() as session:
        session.execute(update(DocumentRow).where(DocumentRow.name == "good.md").values(status=Status.SEARCHABLE))
    assert (source.now().files.ready, source.now().files.searchable) == (0, 1)
    assert source.file_statuses()["good.md"] == (FileStatus.SEARCHABLE, None)
    status, reason = source.file_statuses()["broken.pdf"]
    assert status == FileStatus.FAILED
    assert reason is not None
    assert ".pdf" in reason

    assert source.sync().unchanged == 2
    assert source.now().files.failed == 1
    retry_files(source.parts.default_collection.tenant_id, source.view.id, source.parts.database)
    source.sync()
    assert (source.now().files.waiting, source.now().files.failed) == (1, 0)

    source.write("broken.pdf", b"%PDF-1.4 changed")
    assert source.sync().changed == 1


@pytest.mark.parametrize("new_name", ["a-report.md", "z-report.md"])
def test_a_document_is_called_like_its_file_after_that_was_renamed(folder: Source, new_name: str):
    """In whichever order the files are listed; another file may have taken its place."""
    first, second = b"# Report\n\nThe year 2023.\n", b"# Report\n\nThe year 2024.\n"
    folder.write("report.md", first)
    folder.sync()
    before = generation(folder)
    folder.delete("report.md")
    folder.write("old-report.md", first)
    folder.sync()
    assert folder.documents() == {"old-report.md": first}
    assert generation(folder) > before

    folder.delete("old-report.md")
    folder.write(new_name, first)
    folder.write("old-report.md", second)
    folder.sync()
    assert folder.documents() == {new_name: first, "old-report.md": second}


def test_a_document_that_was_renamed_keeps_its_name_when_its_file_is_renamed_or_changed(folder: Source):
    folder.write("report.md", b"# Report\n")
    folder.sync()
    (document,) = documents(folder)
    amend_document(document.tenant_id, document.id, folder.parts.database, name="Ours.md")
    folder.delete("report.md")
    folder.write("report-2023.md", b"# Report\n")
    folder.sync()
    assert folder.documents() == {"Ours.md": b"# Report\n"}

    folder.write("report-2023.md", b"# Report, corrected\n")
    folder.sync()
    assert folder.documents() == {"Ours.md": b"# Report, corrected\n"}


def test_a_full_tenants_deletions_make_room(folder: Source):
    with_settings(folder.parts, max_tenant_documents=2)
    folder.write("a.md", b"# A\n")
    folder.write("old.md", b"# Old\n")
    folder.sync()
    folder.delete("old.md")
    folder.write("a.md", b"# A, changed\n")
    folder.write("new.md", b"# New\n")
    full = folder.sync()
    assert (full.outcome, full.deleted) == ("failed", 1) and "at most 2 documents" in str(full.error)

    last = folder.sync()
    assert (last.outcome, last.error) == ("done", None)
    assert folder.documents() == {"a.md": b"# A, changed\n", "new.md": b"# New\n"}


def test_files_of_a_disk_that_was_away_are_read_once_it_is_back(folder: Source, monkeypatch: pytest.MonkeyPatch):
    for name in ("a.md", "b.md"):
        folder.write(name, b"# Note " + name.encode())
    opened = os.open

    def failing(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith(".md"):
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing)
        assert (folder.sync().unreadable, folder.documents()) == (2, {})

    assert (folder.sync().added, len(folder.documents())) == (2, 2)


@pytest.mark.parametrize("odd", ["a//b.md", "/b.md", "a//", "a/b\x01.md"])
def test_a_key_that_is_no_path_hides_no_files_of_other_folders(bucket: Source, s3_place: StoreLocation, odd: str):
    """obstore lists no page that has such a key. Files behind an empty name are found, too."""
    names = ["A.md", "a/c.md", "a/d/e.md", "b/c.md", "z.md"]
    expected = [name for name in names if odd.isprintable() or not name.startswith("a/")]
    for name in names:
        bucket.write(name, f"# {name}\n".encode())
    put_object(s3_place, odd, b"# Odd\n")
    first = bucket.sync()
    bucket.delete("z.md")
    second = bucket.sync()

    assert (first.outcome, first.added) == ("done", len(expected))
    assert sorted(bucket.file_statuses()) == expected
    assert "some/prefix/" in str(second.error) and "Nothing was deleted" in str(second.error)
    assert (second.unchanged, second.deleted) == (len(expected) - 1, 0)


def test_a_key_that_is_no_path_has_no_file_listed_more_than_twice(s3_place: StoreLocation):
    """More files than one page of a listing come before it, ten folders down."""
    store, keys = opened(s3_place), [f"{'a/' * 9}{number}.md" for number in range(1010)]
    for key in keys:
        obstore.put(store, key, b"# A\n")
    put_object(s3_place, f"{'a/' * 10}/b.md", b"# Odd\n")

    times = Counter(file.key for file in BucketFiles(s3_place).listed())

    assert sorted(times) == sorted(keys)
    assert max(times.values()) == 2


def test_a_key_that_is_no_path_may_lie_as_deep_as_a_key_is_long(s3_place: StoreLocation):
    deep = "a/" * 490
    obstore.put(opened(s3_place), f"{deep}c.md", b"# C\n")
    put_object(s3_place, f"{deep}/b.md", b"# Odd\n")
    files = BucketFiles(s3_place)

    assert [file.key for file in files.listed()] == [f"{deep}c.md"]
    assert files.gap is not None


def put_object(place: StoreLocation, key: str, content: bytes) -> None:
    """Store an object under any key, also under one that obstore refuses."""
    bucket = place.url.removeprefix("s3://")
    httpx.put(f"{place.endpoint}/{bucket}/{quote(key)}", content=content).raise_for_status()


def documents(source: Source) -> list[DocumentRow]:
    with source.parts.database.reading() as session:
        return list(session.scalars(select(DocumentRow).order_by(DocumentRow.name)))


@pytest.mark.parametrize(("status", "reason"), [(403, "refuses the service's credentials"), (404, "no such bucket")])
def test_a_bucket_that_cannot_be_listed_says_why(status: int, reason: str):
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

    with HTTPServer(("127.0.0.1", 0), Refusing) as server, ThreadPoolExecutor() as threads:
        serving = threads.submit(server.handle_request)
        place = StoreLocation(
            "s3://bucket/notes", f"http://127.0.0.1:{server.server_port}", "us-east-1", "key", "secret"
        )
        with pytest.raises(Unavailable, match=reason):
            list(BucketFiles(place).listed())
        serving.result()


def test_a_document_says_where_it_comes_from(source: Source):
    source.write("sub/a.md", b"# A\n")
    source.sync()
    (document,) = documents(source)
    assert document.origin == f"{source.view.location}/sub/a.md"
    with source.parts.database.reading() as session:
        (event,) = session.scalars(select(AuditRow).where(AuditRow.within == source.view.id))
    assert (event.action, event.resource, event.client) == (
        "Add a document from a data source", document.id, "data source",
    )  # fmt: skip


class TestDeletions:
    """What is deleted, and what asks first."""

    def test_an_empty_listing_deletes_nothing_until_it_is_confirmed(self, source: Source):
        fill(source, 3)
        source.sync()
        for number in range(3):
            source.delete(f"sub/{number}/{number}.md")
        held = source.sync()
        assert (held.outcome, held.held, held.deleted) == ("held", 3, 0)
        assert "3 of 3 files are no longer there" in str(held.error)
        assert source.now().status == "held"
        assert len(documents(source)) == 3

        tenant_id = source.parts.default_collection.tenant_id
        request_sync(tenant_id, source.view.id, confirm=True, database=source.parts.database)
        assert source.sync().deleted == 3
        assert documents(source) == []
        assert source.now().status == "synced"

    def test_a_failed_sync_is_no_longer_held(self, folder: Source, inbox: Path):
        """Its reason is shown, and no button that confirms deletions."""
        folder.write("a.md", b"# A\n")
        folder.sync()
        folder.delete("a.md")
        assert folder.sync().held == 1

        inbox.rmdir()
        folder.sync()
        assert (folder.now().status, folder.now().held_deletions) == ("failed", 0)

    def test_more_than_half_of_the_files_ask_and_no_more_than_was_confirmed_goes(self, folder: Source):
        fill(folder, 24)
        folder.sync()
        for number in range(13):
            folder.delete(f"sub/{number % 3}/{number}.md")
        assert folder.sync().held == 13
        tenant_id = folder.parts.default_collection.tenant_id
        request_sync(tenant_id, folder.view.id, confirm=True, database=folder.parts.database)
        folder.delete("sub/1/13.md")
        assert folder.sync().held == 14
        assert len(documents(folder)) == 24
        request_sync(tenant_id, folder.view.id, confirm=True, database=folder.parts.database)
        assert folder.sync().deleted == 14

    def test_a_confirmation_during_a_sync_is_for_the_next(self, folder: Source):
        """The one under way goes by what was confirmed before it began."""
        tenant_id = folder.parts.default_collection.tenant_id
        fill(folder, 24)
        folder.sync()
        for number in range(13):
            folder.delete(f"sub/{number % 3}/{number}.md")
        assert folder.sync().held == 13

        def confirming(tally: SyncTally) -> bool:
            request_sync(tenant_id, folder.view.id, confirm=True, database=folder.parts.database)
            return True

        assert (
            sync_now(
                folder.view.id, folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, confirming
            ).held
            == 13
        )
        due = sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on)
        assert due is not None
        assert (due.outcome, due.deleted) == ("done", 13)

    def test_other_files_in_place_of_all_ask_too(self, folder: Source):
        fill(folder, 12)
        folder.sync()
        for number in range(12):
            folder.delete(f"sub/{number % 3}/{number}.md")
            folder.write(f"other {number}.md", f"# Other {number}\n".encode())
        assert folder.sync().held == 12

    def test_files_that_were_only_renamed_ask_nothing(self, source: Source):
        fill(source, 12)
        source.sync()
        before = {row.id for row in documents(source)}
        for number in range(12):
            source.delete(f"sub/{number % 3}/{number}.md")
            source.write(f"moved/{number}.md", f"# Note {number}\n\nText of note {number}.\n".encode())

        moved = source.sync()
        assert (moved.outcome, moved.held, moved.deleted) == ("done", 0, 12)
        assert {row.id for row in documents(source)} == before
        assert all("/moved/" in (row.origin or "") for row in documents(source))

    def test_a_file_with_a_folder_in_its_place_is_gone(self, folder: Source):
        folder.write("a.md", b"# A\n")
        folder.write("b.md", b"# B\n")
        folder.sync()
        folder.delete("a.md")
        folder.write("a.md/part.md", b"# Part\n")

        assert folder.sync().deleted == 1
        assert set(folder.documents()) == {"b.md", "part.md"}

    def test_a_folder_that_is_gone_stops_the_sync(self, folder: Source, inbox: Path):
        fill(folder, 3)
        folder.sync()
        inbox.rename(inbox.with_name("elsewhere"))
        failed = folder.sync()
        assert (failed.outcome, failed.error) == ("failed", "the folder cannot be read: no such file or directory")
        assert len(documents(folder)) == 3

    def test_a_folder_below_that_cannot_be_read_stops_deletions(
        self, folder: Source, inbox: Path, monkeypatch: pytest.MonkeyPatch
    ):
        fill(folder, 3)
        folder.sync()
        folder.delete("sub/0/0.md")
        scandir = os.scandir

        def refusing(place: int) -> object:
            if str(Path(f"/proc/self/fd/{place}").readlink()).endswith("/sub/1"):
                raise PermissionError(13, "Permission denied")
            return scandir(place)

        monkeypatch.setattr(os, "scandir", refusing)
        partly = folder.sync()
        assert partly.deleted == 0
        assert str(partly.error).startswith("sub/1 cannot be read: permission denied")
        assert len(documents(folder)) == 3
        monkeypatch.undo()
        assert folder.sync().deleted == 1

    def test_equal_files_are_one_document_that_goes_with_the_last(self, source: Source):
        source.write("a.md", b"# Same\n")
        source.write("b.md", b"# Same\n")
        source.write("c.md", b"# Other\n")
        source.sync()
        assert len(documents(source)) == 2
        first = next(one for one in documents(source) if one.name != "c.md").name
        source.delete(first)
        source.sync()
        left = {one.origin for one in documents(source)}
        assert f"{source.view.location}/{'b.md' if first == 'a.md' else 'a.md'}" in left
        source.write("a.md" if first == "b.md" else "b.md", b"# Changed\n")
        source.sync()
        assert source.contents() == [b"# Changed\n", b"# Other\n"]

    def test_a_changed_file_that_becomes_equal_to_another_gives_up_its_document(self, folder: Source):
        folder.write("a.md", b"# A\n")
        folder.write("b.md", b"# B\n")
        folder.sync()
        folder.write("a.md", b"# B\n")
        assert folder.sync().changed == 1
        assert folder.contents() == [b"# B\n"]

    @pytest.mark.parametrize("uploaded_first", [True, False])
    def test_a_document_that_was_uploaded_too_stays(self, folder: Source, tmp_path: Path, uploaded_first: bool):
        (tmp_path / "mine.md").write_bytes(b"# Mine\n")

        def upload() -> None:
            with (tmp_path / "mine.md").open("rb") as body:
                accept_document(folder.parts.default_collection, "mine.md", body, folder.parts.intake)

        folder.write("keep.md", b"# Keep\n")
        folder.write("a.md", b"# Mine\n")
        if uploaded_first:
            upload()
        folder.sync()
        if not uploaded_first:
            upload()
        folder.write("a.md", b"# Changed\n")
        folder.sync()
        assert folder.contents() == [b"# Changed\n", b"# Keep\n", b"# Mine\n"]

    @pytest.mark.parametrize("attached_first", [True, False])
    def test_a_document_stays_when_its_attached_file_goes_and_goes_with_its_file_here(
        self, folder: Source, attached_first: bool
    ):
        ref = folder.parts.default_collection
        file = keep_file(
            ref.tenant_id,
            "a.md",
            "assistants",
            io.BytesIO(b"# A\n"),
            folder.parts.database,
            folder.parts.settings,
            folder.parts.files,
        )
        folder.write("keep.md", b"# Keep\n")
        folder.write("a.md", b"# A\n")
        if not attached_first:
            folder.sync()
        attach_files(ref, [Attach(file.id)], folder.parts.intake)
        if attached_first:
            folder.sync()
        detach_file(ref, file.id, folder.parts.removal)
        assert folder.contents() == [b"# A\n", b"# Keep\n"]
        assert {one.data_source_id for one in documents(folder)} == {folder.view.id}
        assert all(one.origin is not None and one.origin.endswith(one.name) for one in documents(folder))

        folder.delete("a.md")
        folder.sync()
        assert folder.contents() == [b"# Keep\n"]

    @pytest.mark.parametrize("goes", [True, False])
    def test_a_document_whose_file_was_replaced_by_an_upload_stays(self, folder: Source, goes: bool):
        """Whether the data source's file is deleted or changed then."""
        folder.write("keep.md", b"# Keep\n")
        folder.write("a.md", b"# A\n")
        folder.sync()
        (replaced,) = (one for one in documents(folder) if one.name == "a.md")
        replace_document(
            replaced.tenant_id,
            replaced.id,
            "mine.md",
            io.BytesIO(b"# Mine\n"),
            folder.parts.intake,
            folder.parts.removal,
        )
        if goes:
            folder.delete("a.md")
        else:
            folder.write("a.md", b"# Changed\n")
        folder.sync()

        changed = [] if goes else [b"# Changed\n"]
        assert folder.contents() == [*changed, b"# Keep\n", b"# Mine\n"]

    def test_a_document_that_is_uploaded_while_its_file_is_exchanged_stays(
        self, folder: Source, monkeypatch: pytest.MonkeyPatch
    ):
        folder.write("keep.md", b"# Keep\n")
        folder.write("a.md", b"# Mine\n")
        folder.sync()
        folder.write("a.md", b"# Changed\n")
        receive = folder.parts.files.receive

        def uploaded_meanwhile(*arguments: Any) -> Any:
            monkeypatch.setattr(folder.parts.files, "receive", receive)
            accept_document(folder.parts.default_collection, "mine.md", io.BytesIO(b"# Mine\n"), folder.parts.intake)
            return receive(*arguments)

        monkeypatch.setattr(folder.parts.files, "receive", uploaded_meanwhile)
        folder.sync()

        assert folder.contents() == [b"# Changed\n", b"# Keep\n", b"# Mine\n"]

    def test_a_document_of_two_data_sources_that_is_uploaded_while_one_loses_its_file_stays(
        self, folder_on_either: Source, inbox: Path
    ):
        first, parts = folder_on_either, folder_on_either.parts
        (inbox.parent / "other").mkdir()
        second = folder_source(parts, inbox.parent / "other")
        for source in (first, second):
            source.write("keep.md", b"# Keep\n")
            source.write("a.md", b"# Mine\n")
            source.sync()
        shared = next(document for document in documents(first) if document.name == "a.md")
        assert shared.data_source_id == second.view.id  # which came last
        lease = taken(second)

        with ThreadPoolExecutor() as syncing:
            with parts.database.writing() as uploading:
                advisory_lock(uploading, uploads_lock(shared.tenant_id))
                uploaded = uploading.get_one(DocumentRow, shared.id)
                uploaded.data_source_id, uploaded.was_uploaded = None, True
                uploading.flush()
                to_delete = syncing.submit(lease.documents_to_delete, {"a.md": shared.id})
                with pytest.raises(TimeoutError):
                    to_delete.result(timeout=0.5)
            assert to_delete.result(timeout=30) == []
        lease.give_back()

        for source in (first, second):
            source.delete("a.md")
            source.sync()
        assert first.contents() == [b"# Keep\n", b"# Mine\n"]
        assert {document.data_source_id for document in documents(first) if document.name == "a.md"} == {None}

    def test_a_document_that_was_uploaded_stays_though_a_data_source_is_named_as_its_place(self, folder: Source):
        """As a sync and an upload at the same time left it before the one waited for the other."""
        folder.write("keep.md", b"# Keep\n")
        folder.write("a.md", b"# A\n")
        folder.sync()
        with folder.parts.database.writing() as session:
            session.execute(update(DocumentRow).where(DocumentRow.name == "a.md").values(was_uploaded=True))
        folder.delete("a.md")
        assert folder.sync().outcome == "done"
        assert folder.contents() == [b"# A\n", b"# Keep\n"]

    def test_a_document_that_is_an_attached_file_too_stays(self, folder: Source):
        ref = folder.parts.default_collection
        folder.write("keep.md", b"# Keep\n")
        folder.write("a.md", b"# Mine\n")
        folder.sync()
        file = keep_file(
            ref.tenant_id,
            "mine.md",
            "assistants",
            io.BytesIO(b"# Mine\n"),
            folder.parts.database,
            folder.parts.settings,
            folder.parts.files,
        )
        attach_files(ref, [Attach(file.id)], folder.parts.intake)
        folder.delete("a.md")
        folder.sync()
        assert folder.contents() == [b"# Keep\n", b"# Mine\n"]
        assert entry_of(ref, file.id, folder.parts.database).document.data_source_id is None

    def test_a_document_deleted_by_hand_comes_back(self, folder: Source):
        folder.write("a.md", b"# A\n")
        folder.sync()
        (document,) = documents(folder)
        delete_document(document.tenant_id, document.id, folder.parts.removal)
        assert folder.sync().added == 1
        assert len(documents(folder)) == 1


class TestHostileFolders:
    """Nothing outside of what the operator allows is read."""

    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        path = tmp_path / "secret.md"
        path.write_bytes(b"# Secret\n")
        return path

    def test_links_and_special_files_are_not_read(self, folder: Source, inbox: Path, secret: Path):
        with_settings(folder.parts, data_sources_allowed=str(inbox))
        (inbox / "link.md").symlink_to(secret)
        (inbox / "loop").symlink_to(inbox)
        os.mkfifo(inbox / "pipe.md")
        folder.write("good.md", b"# Good\n")
        began = time.monotonic()
        tally = folder.sync()
        assert time.monotonic() - began < 5
        assert (tally.added, tally.unreadable) == (1, 2)
        assert "symbolic link" in str(folder.file_statuses()["link.md"][1])
        assert "not a regular file" in str(folder.file_statuses()["pipe.md"][1])
        assert list(folder.documents()) == ["good.md"]

    def test_a_link_put_in_place_of_a_file_or_folder_meanwhile_is_not_followed(
        self, folder: Source, inbox: Path, secret: Path
    ):
        files = folder_module.FolderFiles(inbox.parent, ["inbox"])
        (inbox / "a.md").symlink_to(secret)
        with pytest.raises(Rejected, match="symbolic link"), files.open("a.md"):
            pass
        (inbox / "sub").symlink_to(secret.parent)
        with pytest.raises((Rejected, NotFound)), files.open("sub/secret.md"):
            pass
        inbox.rename(inbox.with_name("real"))
        inbox.symlink_to(inbox.with_name("real"))
        tally = folder.sync()
        assert tally.outcome == "failed"

    def test_other_places_are_refused(self, folder: Source, inbox: Path, subtests: pytest.Subtests):
        for location in ["/etc", "/", "file:///etc", "s3://bucket/x", "gs://bucket", "{inbox}/../..", "{inbox}-more"]:
            with subtests.test(location):
                with_settings(folder.parts, data_sources_allowed=str(inbox))
                with pytest.raises((Forbidden, Rejected)):
                    connected(folder.parts, location.format(inbox=inbox))

    def test_nothing_is_allowed_unless_the_operator_says_so(self, folder: Source, inbox: Path):
        with_settings(folder.parts, data_sources_allowed="")
        with pytest.raises(Forbidden, match="RAGKV_DATA_SOURCES_ALLOWED"):
            connected(folder.parts, str(inbox / "below"))
        assert folder.sync().outcome == "failed"

    @pytest.mark.parametrize(
        "setting", ["inbox", "/srv/../etc", "s3://key:hunter2@bucket", "acme=", "http://10.0.0.1/"]
    )
    def test_a_setting_that_names_no_location_stops_the_start(self, setting: str):
        with pytest.raises(Rejected, match="RAGKV_DATA_SOURCES_ALLOWED") as refused:
            Parts(Settings.of({"data_sources_allowed": setting}))
        assert "hunter2" not in str(refused.value)

    def test_what_is_allowed_to_one_tenant_is_refused_to_others(self, folder: Source, inbox: Path):
        with_settings(folder.parts, data_sources_allowed=f"acme={inbox}")
        with pytest.raises(Forbidden):
            connected(folder.parts, str(inbox / "below"))
        acme = ensure_collection(folder.parts.database, "acme")
        add_data_source(acme.tenant_id, acme.collection_id, str(inbox), 0, folder.parts.database, folder.parts.settings)

    def test_the_services_own_data_is_refused(self, folder: Source):
        with_settings(folder.parts, data_sources_allowed="/")
        for place in (folder.parts.settings.data_dir / "files", folder.parts.settings.data_dir.parent):
            with pytest.raises(Forbidden, match="own data folder"):
                connected(folder.parts, str(place))

    def test_a_name_that_is_no_utf8_is_listed_with_the_reason(self, folder: Source, inbox: Path):
        (inbox / os.fsdecode(b"caf\xe9.md")).write_bytes(b"# Cafe\n")
        assert folder.sync().unreadable == 1
        assert folder.file_statuses() == {"caf\\xe9.md": (FileStatus.UNREADABLE, "its name is not UTF-8: rename it")}
        assert folder.sync().unchanged == 1

    def test_a_long_name_that_is_no_utf8_is_cut_and_holds_up_no_other(self, folder_on_postgres: Source, inbox: Path):
        """Shown, each of its bytes takes four characters."""
        below = inbox / ("b" * 30)
        below.mkdir()
        (below / os.fsdecode(b"\xff" * 250 + b".md")).write_bytes(b"# Long\n")
        folder_on_postgres.write("c.md", b"# C\n")
        tally = folder_on_postgres.sync()
        assert (tally.outcome, tally.added, tally.unreadable) == ("done", 1, 1)
        cut = next(key for key in folder_on_postgres.file_statuses() if key != "c.md")
        assert len(cut) == 1024
        assert cut.endswith("\\xff.md")
        assert folder_on_postgres.sync().unchanged == 2


class TestLimits:
    """Sizes, quotas, and how many there may be."""

    def test_a_file_that_is_too_large_is_listed_and_the_others_are_read(self, source: Source):
        with_settings(source.parts, max_upload_bytes=20)
        source.write("large.md", b"x" * 21)
        source.write("small.md", b"# Small\n")
        assert (source.sync().added, source.now().files.unreadable) == (1, 1)

    def test_images_are_read_where_there_is_ocr_and_refused_unopened_where_not(self, source: Source):
        """A folder of photographs takes no room then."""
        with_settings(source.parts, ocr=False)
        source.write("scan.PNG", encoded(picture(["words"])))
        source.write("a.md", b"# A\n")
        assert (source.sync().added, source.now().files.unreadable) == (1, 1)
        status, reason = source.file_statuses()["scan.PNG"]
        assert status == FileStatus.UNREADABLE
        assert "RAGKV_OCR" in str(reason)

        with_settings(source.parts, ocr=True)
        retry_files(source.parts.default_collection.tenant_id, source.view.id, source.parts.database)
        assert source.sync().added == 1
        assert sorted(source.documents()) == ["a.md", "scan.PNG"]

    def test_a_full_tenant_stops_the_sync_which_goes_on_once_there_is_room(self, source: Source):
        with_settings(source.parts, max_tenant_documents=2)
        fill(source, 3)
        stopped = source.sync()
        assert (stopped.outcome, stopped.added) == ("failed", 2)
        assert "RAGKV_MAX_TENANT_DOCUMENTS" in str(source.now().error)
        with_settings(source.parts, max_tenant_documents=0)
        assert (source.sync().added, source.now().status) == (1, "synced")

    def test_a_tenant_has_no_more_data_sources_than_it_may(self, folder: Source, inbox: Path):
        for number in range(MAX_DATA_SOURCES - 1):
            connected(folder.parts, str(inbox / str(number)))
        with pytest.raises(Conflict, match="already"):
            connected(folder.parts, str(inbox / "more"))

    def test_an_error_of_the_system_names_no_place_of_the_server(self, folder: Source):
        files = folder.parts.settings.files_dir
        shutil.rmtree(files, ignore_errors=True)
        files.write_text("no folder")
        fill(folder, 1)

        assert folder.sync().outcome == "failed"
        assert str(folder.now().error) == "an unexpected error: see the worker's log"

    def test_an_error_that_nobody_foresaw_ends_the_sync(
        self, folder: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ):
        def failing(place: int) -> object:
            raise ValueError("unforeseen")

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", failing)
            assert folder.sync().outcome == "failed"
        view = folder.now()
        assert (view.status, view.error) == ("failed", "an unexpected error: see the worker's log")
        assert "unforeseen" in caplog.text
        assert folder.sync().outcome == "done"

    def test_a_store_that_is_away_is_the_reason(self, bucket: Source, monkeypatch: pytest.MonkeyPatch):
        fill(bucket, 2)
        bucket.sync()
        with_settings(bucket.parts, data_sources_endpoint="http://127.0.0.1:9")
        monkeypatch.setattr("ragkv.object_store.RETRIES", 0)
        failed = bucket.sync()
        assert failed.outcome == "failed"
        assert "object store" in str(failed.error)
        assert not any(word in str(failed.error) for word in ("secret", "127.0.0.1", "bucket"))
        assert len(documents(bucket)) == 2

    def test_objects_that_can_never_be_read_hold_up_no_others_for_long(
        self, bucket: Source, monkeypatch: pytest.MonkeyPatch
    ):
        """The first sync takes them for a store that is away; from then on they are known."""
        fill(bucket, 8)
        bucket.sync()
        lost = [f"lost {number}.md" for number in range(OUTAGES)]
        for name in lost:
            bucket.write(name, f"# {name}\n".encode())
        bucket.write("sub/0/0.md", b"# Changed\n")
        bucket.delete("sub/1/1.md")
        get = obstore.get

        def failing(store: Any, key: str) -> Any:
            if key in lost:
                raise GenericError("a shard is lost")
            return get(store, key)

        monkeypatch.setattr(obstore, "get", failing)
        assert bucket.sync().outcome == "failed"
        second = bucket.sync()
        assert (second.outcome, second.changed, second.deleted) == ("done", 1, 1)
        assert {bucket.file_statuses()[name][0] for name in lost} == {FileStatus.UNREADABLE}

        retry_files(bucket.parts.default_collection.tenant_id, bucket.view.id, bucket.parts.database)
        assert bucket.sync().outcome == "failed", "asked to try them again, it stops where they are away"

        monkeypatch.undo()
        assert bucket.sync().added == OUTAGES


class TestTurns:
    """One process at a time, and another one goes on."""

    def test_two_processes_never_sync_one_data_source_at_once(self, folder: Source):
        lease = SyncLease.take(folder.parts.database, folder.view.id, "first")
        assert lease is not None
        with pytest.raises(Conflict, match="another process"):
            folder.sync()
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is None
        lapse(folder)
        assert folder.sync().outcome == "done"
        with pytest.raises(Conflict):
            lease.record("a.md", "1", 1, None, None)

    def test_a_sync_is_due_at_first_and_then_by_its_interval(self, folder: Source):
        folder.write("a.md", b"# A\n")
        tally = sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on)
        assert tally is not None
        assert tally.added == 1
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is None
        view = folder.now()
        assert view.next_at is not None
        assert view.synced_at is not None
        assert (view.next_at - view.synced_at).total_seconds() == 15 * 60

    def test_a_first_sync_is_due_at_once_whatever_the_clock_of_who_asked(self, folder_on_postgres: Source, inbox: Path):
        parts = folder_on_postgres.parts
        folder_on_postgres.sync()
        (inbox.parent / "other").mkdir()
        with clock_ahead(timedelta(hours=1)):
            connected(parts, str(inbox.parent / "other"))

        assert sync_next(parts.intake, parts.removal, parts.worker_counters, on) is not None

    @pytest.mark.parametrize("held", [True, False])
    def test_a_sync_put_off_by_a_clock_that_ran_ahead_is_due_once_it_is_right(self, folder: Source, held: bool):
        year_ahead = utc_now() + timedelta(days=365)
        values = {"lease_owner": "died", "lease_until": year_ahead} if held else {"next_at": year_ahead}
        with folder.parts.database.writing() as session:
            session.execute(update(DataSourceRow).values(values))

        assert folder.now().status == "waiting"
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is not None

    @pytest.mark.parametrize("interval_minutes", [0, 60])
    def test_a_new_interval_puts_off_no_sync_that_is_due(self, folder: Source, interval_minutes: int):
        """The first one, or one that was asked for."""
        tenant_id, database = folder.parts.default_collection.tenant_id, folder.parts.database
        change_data_source(tenant_id, folder.view.id, database, interval_minutes=interval_minutes)
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is not None
        view = folder.now()
        assert view.synced_at is not None
        next_at = view.synced_at + timedelta(minutes=interval_minutes) if interval_minutes else None
        assert view.next_at == next_at

        request_sync(tenant_id, folder.view.id, confirm=False, database=database)
        change_data_source(tenant_id, folder.view.id, database, interval_minutes=interval_minutes)
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is not None

    def test_a_paused_one_is_not_synced_and_a_sync_under_way_ends(self, folder: Source):
        tenant_id = folder.parts.default_collection.tenant_id
        fill(folder, 3)

        def pausing(tally: SyncTally) -> bool:
            change_data_source(tenant_id, folder.view.id, folder.parts.database, paused=True)
            return True

        with pytest.raises(Conflict):
            sync_now(folder.view.id, folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, pausing)
        assert len(documents(folder)) <= 1
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is None
        change_data_source(tenant_id, folder.view.id, folder.parts.database, paused=False)
        assert sync_next(folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, on) is not None
        assert len(documents(folder)) == 3

    def test_a_retry_that_is_refused_while_it_is_paused_changes_nothing(self, folder: Source):
        folder.write("empty.md", b"")
        folder.sync()
        mine = (folder.parts.default_collection.tenant_id, folder.view.id, folder.parts.database)
        change_data_source(*mine, paused=True)
        with pytest.raises(Conflict, match="resume it first"):
            retry_files(*mine)
        change_data_source(*mine, paused=False)

        again = folder.sync()
        assert (again.unchanged, again.unreadable) == (1, 0), "it was read again"

    def test_a_worker_that_stops_leaves_the_rest_to_another(self, source: Source):
        fill(source, 6)
        assert (
            sync_now(
                source.view.id,
                source.parts.intake,
                source.parts.removal,
                source.parts.worker_counters,
                lambda tally: tally.added < 2,
            ).outcome
            == "interrupted"
        )
        assert len(documents(source)) == 2
        rest = sync_next(source.parts.intake, source.parts.removal, source.parts.worker_counters, on)
        assert rest is not None
        assert (rest.added, rest.unchanged) == (4, 2)

    def test_an_interrupt_from_the_keyboard_leaves_the_rest_to_another(self, folder: Source):
        fill(folder, 3)

        def interrupted(tally: SyncTally) -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sync_now(
                folder.view.id, folder.parts.intake, folder.parts.removal, folder.parts.worker_counters, interrupted
            )
        assert folder.sync().outcome == "done"

    def test_a_process_killed_in_the_middle_leaves_nothing_behind(self, folder: Source, inbox: Path):
        """Killed after a document was accepted and before its file was noted, and that file is deleted since."""
        fill(folder, 6)
        script = """
            import os, signal, sys, msgspec
            from ragkv.service.data_sources import syncing
            from ragkv.service.data_sources.sync_lease import SyncLease
            from ragkv.service.parts import Parts
            from ragkv.settings import Settings

            record = SyncLease.record

            def dying(self, *given):
                dying.calls += 1
                if dying.calls == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
                record(self, *given)

            dying.calls = 0
            SyncLease.record = dying
            parts = Parts(msgspec.convert(msgspec.json.decode(sys.argv[1]), Settings, dec_hook=lambda kind, v: kind(v)))
            syncing.sync_now(sys.argv[2], parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
        """
        given = msgspec.json.encode(folder.parts.settings, enc_hook=str).decode()
        command = [sys.executable, "-c", textwrap.dedent(script), given, folder.view.id]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        accepted = {one.origin for one in documents(folder)}
        assert len(accepted) == 4
        (unnoted,) = accepted - {f"{folder.view.location}/{key}" for key in folder.file_statuses()}
        Path(unnoted).unlink()
        lapse(folder)
        rest = folder.sync()
        assert (rest.unchanged, rest.added, rest.deleted) == (3, 2, 0)
        assert {one.origin for one in documents(folder)} == {str(path) for path in inbox.rglob("*.md")}
        assert len(documents(folder)) == 5


class TestDoors:
    """The API, the command line, and the workers' threads."""

    def test_over_http(self, client: Client, parts: Parts, inbox: Path):
        with_settings(parts, data_sources_allowed=str(inbox))
        assert client.post("/v1/data-sources", json={"location": "/etc"}).status_code == 403
        made = client.post("/v1/data-sources", json={"location": str(inbox), "interval_minutes": 0})
        assert (made.status_code, made.json()["status"]) == (201, "waiting")
        path = f"/v1/data-sources/{made.json()['id']}"
        (inbox / "a.md").write_bytes(b"# A\n")
        (inbox / "empty.md").write_bytes(b"")
        assert sync_next(parts.intake, parts.removal, parts.worker_counters, on) is not None
        shown = client.get(path).json()
        assert client.get("/v1/data-sources").json() == {"items": [shown], "next": None}
        assert (shown["status"], shown["files"]["waiting"], shown["next_at"]) == ("synced", 1, None)
        (unreadable,) = client.get(f"{path}/files?status=unreadable").json()["items"]
        assert (unreadable["key"], unreadable["error"]) == ("empty.md", "the file is empty")
        assert client.get("/v1/documents").json()["items"][0]["origin"] == f"{inbox}/a.md"

        assert client.post(f"{path}/sync", json={"confirm": True}).status_code == 409
        assert client.post(f"{path}/retry").status_code == 202
        assert client.patch(path, json={"paused": True}).json()["status"] == "paused"
        assert client.post(f"{path}/sync", json={}).status_code == 409
        page = client.get(f"/admin{path.removeprefix('/v1')}")
        assert "the file is empty" in page.text
        listed = client.get("/admin/data-sources").text
        assert str(inbox) in listed
        assert "once resumed" in listed
        assert "once resumed" in page.text
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == 404
        assert len(client.get("/v1/documents").json()["items"]) == 1

    def test_on_the_command_line(
        self, parts: Parts, redis_server: EmbeddedRedis, inbox: Path, monkeypatch: pytest.MonkeyPatch
    ):
        for name in ("data_dir", "model"):
            monkeypatch.setenv(f"RAGKV_{name.upper()}", str(getattr(parts.settings, name)))
        monkeypatch.setenv("RAGKV_DATA_SOURCES_ALLOWED", str(inbox))

        def run(*arguments: str, code: int = 0) -> str:
            done = CliRunner().invoke(data_sources, arguments)
            assert done.exit_code == code, done.output
            return done.output.strip()

        place = inbox / "[" / "old]"
        place.mkdir(parents=True)
        made = run("add", str(place))
        (place / "a.md").write_bytes(b"# A\n")
        (place / "empty.md").write_bytes(b"")
        assert "1 new, 0 changed, 0 deleted, 0 unchanged, 1 unreadable, 0 skipped" in run("sync", made)
        assert str(place) in run("list")
        (place / "\x1b]0;title\x07\nready  no.md").write_bytes(b"# B\n")
        assert "1 new" in run("sync", made)
        assert "unreadable  empty.md: the file is empty" in run("show", made)
        assert r"waiting     \x1b]0;title\x07\nready  no.md" in run("show", made), "a terminal takes no orders from it"
        for file in place.iterdir():
            file.unlink()
        assert "3 of 3 files are no longer there" in run("sync", made, code=1)
        assert "3 deleted" in run("sync", made, "--confirm")
        assert "is paused" in run("pause", made)
        refused = CliRunner().invoke(data_sources, ["sync", made])
        assert "resume it first" in str(refused.exception)
        assert "is resumed" in run("resume", made)
        assert "is removed" in run("remove", made)

    def test_a_worker_syncs_what_is_due(self, folder: Source):
        folder.write("a.md", b"# A\n")
        worker = syncing(folder.parts, 0.05)
        worker.start()
        deadline = time.monotonic() + 30
        while not (folder.now().synced_at or time.monotonic() > deadline):
            time.sleep(0.02)
        worker.stop()
        assert len(documents(folder)) == 1


def taken(source: Source) -> SyncLease:
    """The lease of a sync that has begun."""
    lease = SyncLease.take(source.parts.database, source.view.id, "a worker")
    assert lease is not None
    return lease


def lapse(source: Source) -> None:
    """The lease of a process that was killed lapses."""
    with source.parts.database.writing() as session:
        row = session.get_one(DataSourceRow, source.view.id)
        assert row.lease_until is not None
        session.execute(update(DataSourceRow).values(lease_until=row.lease_until - 2 * LEASE))
