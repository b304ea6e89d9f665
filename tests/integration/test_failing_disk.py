"""A disk that is full, and one that turns read-only: nothing is lost, and all goes on when it is back.

On a small file system in memory, which only root may mount.
"""

import io
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest
from litestar.testing import TestClient
from sqlalchemy import Connection, event, text, update

from api.app import create_app
from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.errors import OutOfSpace, Unavailable
from ragkv.files_io import MIB
from ragkv.service.base.database import Database
from ragkv.service.base.long_work import is_outage
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.checks.check import WHILE_STOPPED
from ragkv.service.checks.fsck import examine
from ragkv.service.documents.documents import document_view, store_document
from ragkv.service.health import condition
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import copy_template, ingest_over, lend_models
from tests.support.over_http import HERE, assert_problem, upload

MANY = 10_000
SMALL_MIB, LARGE_MIB = 3, 64
LONG = b"# Engines\n\n" + b"".join(b"Engine number %d stood in hall %d of it.\n\n" % (i, i % 7) for i in range(12))


class Disk:
    """A mounted file system of a size that can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={SMALL_MIB}m,mode=0700", "tmpfs", str(folder))

    def grow(self) -> None:
        self._remount(f"rw,size={LARGE_MIB}m")

    def turn_read_only(self) -> None:
        self._remount("ro")

    def turn_writable(self) -> None:
        self._remount("rw")

    def fill(self) -> Path:
        """Takes every byte that is left."""
        path = self.folder / "ballast"
        with path.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return path
        raise AssertionError("a disk without end")

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def _remount(self, options: str) -> None:
        self._mount("-o", f"remount,{options}", str(self.folder))

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        disk = Disk(folder)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a file system")
    yield disk
    disk.unmount()


@pytest.fixture
def on_disk(
    disk: Disk, settings: Settings, loaded: IngestParts, engine: object, sqlite_template: Path
) -> Iterator[Parts]:
    """Files and KV on the disk, the database elsewhere."""
    elsewhere = f"sqlite:///{disk.folder.parent / 'db.sqlite3'}"
    copy_template(sqlite_template, elsewhere)
    there = {"data_dir": disk.folder / "data", "database_url": elsewhere, "min_free_bytes": 0, "max_kv_bytes": 0}
    parts = Parts(msgspec.structs.replace(settings, **there), engine)
    lend_models(parts, loaded)
    parts.prepare()
    yield parts
    parts.close()


@pytest.fixture
def ingest(on_disk: Parts, loaded: IngestParts) -> IngestParts:
    return ingest_over(on_disk, loaded)


def stored(parts: Parts) -> str:
    return store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts.intake).document_id


def fails_for_now(document_id: str, ingest: IngestParts) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is called, it is an outage
        ingest_document(document_id, ingest)
    assert is_outage(caught.value), caught.value


def comes_to_an_end(document_id: str, ingest: IngestParts) -> None:
    """The time to the next attempt passes, the document is read to its end, and nothing is left over."""
    parts = ingest.parts
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(retry_at=None))
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    assert not [finding for finding in examine(WHILE_STOPPED, parts) if finding.found]


def test_kv_that_finds_the_disk_full_is_made_when_there_is_room(on_disk: Parts, ingest: IngestParts, disk: Disk):
    """Until then the document answers, as often as it is tried in vain."""
    document_id = stored(on_disk)
    for _ in range(2):
        with on_disk.database.writing() as session:
            session.execute(update(DocumentRow).values(retry_at=None))
        fails_for_now(document_id, ingest)
    view = document_view(on_disk.default_collection.tenant_id, document_id, on_disk.database)
    assert view.status is Status.SEARCHABLE
    ref = on_disk.default_collection
    assert on_disk.retriever.search(ref.tenant_id, ref.collection_id, "engine number 7", 3, 1)

    disk.grow()
    comes_to_an_end(document_id, ingest)


def test_a_disk_that_turns_read_only_stops_ingestion_until_it_is_writable(
    on_disk: Parts, ingest: IngestParts, disk: Disk
):
    disk.grow()
    document_id = stored(on_disk)
    disk.turn_read_only()
    fails_for_now(document_id, ingest)
    disk.turn_writable()

    comes_to_an_end(document_id, ingest)


@pytest.mark.parametrize(("how", "expected"), [("full", 507), ("read-only", 503)])
def test_an_upload_that_finds_no_room_is_refused_and_leaves_nothing(
    on_disk: Parts, disk: Disk, how: str, expected: int
):
    with TestClient(create_app(on_disk), base_url=HERE) as client:
        assert upload(client, b"# First\n\nThere is room for this.\n", "first.md").status_code == 202
        ballast = disk.fill() if how == "full" else None
        if ballast is None:
            disk.turn_read_only()
        refused = upload(client, LONG, "engines.md")
        if ballast is not None:
            ballast.unlink()
        else:
            disk.turn_writable()
        again = upload(client, LONG, "engines.md")

    assert refused.status_code == expected, refused.text
    assert again.status_code == 202
    assert not [finding for finding in examine(WHILE_STOPPED, on_disk) if finding.found]


@pytest.mark.parametrize(
    ("moment", "expected", "left"),
    [("before_cursor_execute", 503, {"abandoned_uploads"}), ("commit", 202, set())],
    ids=["before the file has its name", "after it"],
)
def test_a_disk_that_turns_read_only_within_an_upload(
    on_disk: Parts, disk: Disk, moment: str, expected: int, left: set[str]
):
    """What was received cannot even be removed then: the sweep does that."""
    disk.grow()

    def turn(connection: Connection, *arguments: object) -> None:
        if moment == "commit" or str(arguments[1]).startswith("INSERT INTO documents"):
            disk.turn_read_only()

    with TestClient(create_app(on_disk), base_url=HERE) as client:
        event.listen(on_disk.database.engine, moment, turn)
        done = upload(client, LONG, "engines.md")
        event.remove(on_disk.database.engine, moment, turn)
        disk.turn_writable()
        assert done.status_code == expected, done.text
        assert ("retry-after" in done.headers) == (expected == 503)
        assert upload(client, LONG, "engines.md").status_code == (202 if expected == 503 else 200)

    assert {finding.check for finding in examine(WHILE_STOPPED, on_disk) if finding.found} == left


def test_a_form_that_finds_the_disk_full_is_refused(on_disk: Parts, disk: Disk):
    """Large files of a form lie there while they come in."""
    disk.grow()
    with TestClient(create_app(on_disk), base_url=HERE) as client:
        ballast = disk.fill()
        assert_problem(upload(client, LONG * 100, "long.md"), 507, "full")
        ballast.unlink()
        assert upload(client, LONG * 100, "long.md").status_code == 202


def test_a_disk_that_turns_read_only_before_a_deletion(on_disk: Parts, disk: Disk):
    """The file that no row names any more is the sweep's."""
    disk.grow()
    with TestClient(create_app(on_disk), base_url=HERE) as client:
        path = "/v1/documents/" + upload(client, LONG, "engines.md").json()["id"]
        disk.turn_read_only()
        assert_problem(client.delete(path), 503, "cannot write to")
        disk.turn_writable()
        assert client.get(path).status_code == 404


def test_a_folder_on_a_disk_of_its_own_counts_like_the_others(settings: Settings, disk: Disk, engine: object):
    """Where an upload is refused for want of room, /readyz says so."""
    settings.files_dir.parent.mkdir(parents=True, exist_ok=True)
    settings.files_dir.symlink_to(disk.folder)
    with closing(Parts(msgspec.structs.replace(settings, min_free_bytes=(SMALL_MIB - 1) * MIB), engine)) as parts:
        parts.prepare()
        assert condition.disk(parts) == condition.OK
        disk.fill()
        with pytest.raises(OutOfSpace) as refused:
            stored(parts)
        assert condition.disk(parts) == str(refused.value)


def test_a_database_that_finds_the_disk_full_loses_nothing_that_was_committed(disk: Disk, sqlite_template: Path):
    url = f"sqlite:///{disk.folder / 'ragkv.sqlite3'}"
    copy_template(sqlite_template, url)
    database = Database(url)
    kept = ensure_collection(database).tenant_id
    ballast = disk.fill()
    written = 0
    with suppress(Unavailable):
        while written < MANY:
            ensure_collection(database, f"tenant {written} {'x' * 150}")
            written += 1
    ballast.unlink()
    assert written < MANY

    assert ensure_collection(database).tenant_id == kept
    ensure_collection(database, "after")
    with database.reading() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        assert session.scalar(text("SELECT count(*) FROM tenants")) == written + 2
    database.close()
