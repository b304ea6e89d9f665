"""Data sources whose folders are watched: by the worker's threads, real files and the kernel's notices."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from ragkv.errors import Rejected
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tables import DataSourceRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.data_sources.data_sources import (
    DataSourceView,
    add_data_source,
    change_data_source,
    data_source_view,
    folder_changed,
)
from ragkv.service.data_sources.syncing import sync_next, sync_now
from ragkv.service.parts import Parts
from tests.support.over_http import Client, wait_until
from workers.repeating import syncing
from workers.watching import Watching


@pytest.fixture
def inbox(tmp_path: Path, parts: Parts, redis_server: EmbeddedRedis) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed=f"{tmp_path},s3://bucket")
    return folder


@contextmanager
def watching(parts: Parts) -> Iterator[None]:
    """As in a worker, but quicker."""
    watches, syncs = Watching(parts, 0.05, 0.1, 50), syncing(parts, 0.05)
    watches.start()
    syncs.start()
    try:
        yield
    finally:
        watches.stop()
        syncs.stop()
        wait_until(lambda: not threads_named("watching", "data sources-"))


def threads_named(*starts: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(starts)]


def connected(parts: Parts, location: str, minutes: int = 15, watch: bool | None = None) -> DataSourceView:
    ref = parts.default_collection
    return add_data_source(ref.tenant_id, ref.collection_id, location, minutes, parts.database, parts.settings, watch)


def now(parts: Parts, source: DataSourceView) -> DataSourceView:
    return data_source_view(parts.default_collection.tenant_id, source.id, parts.database)


def syncs(parts: Parts, source: DataSourceView) -> int:
    with parts.database.reading() as session:
        return session.get_one(DataSourceRow, source.id).syncs


def test_changes_are_read_long_before_the_schedule(parts: Parts, inbox: Path):
    """New, changed and deleted files, and a folder that disappears and comes back."""
    (inbox / "a.md").write_bytes(b"# A\n")
    source = connected(parts, str(inbox))
    with watching(parts):
        wait_until(lambda: now(parts, source).files.waiting == 1)
        (inbox / "sub").mkdir()
        (inbox / "sub" / "b.md").write_bytes(b"# B\n")
        wait_until(lambda: now(parts, source).files.waiting == 2)
        (inbox / "a.md").unlink()
        wait_until(lambda: now(parts, source).files.waiting == 1)

        inbox.rename(inbox.with_name("away"))
        wait_until(lambda: now(parts, source).watch_error is not None)
        assert "cannot be read" in str(now(parts, source).watch_error)
        assert now(parts, source).files.waiting == 1
        shutil.copytree(inbox.with_name("away"), inbox)
        (inbox / "c.md").write_bytes(b"# C\n")
        wait_until(lambda: now(parts, source).files.waiting == 2)
        assert now(parts, source).watch_error is None


def test_a_change_during_a_sync_makes_another_due(parts: Parts, inbox: Path):
    (inbox / "a.md").write_bytes(b"# A\n")
    source = connected(parts, str(inbox))

    def change(tally: object) -> bool:
        folder_changed(source.id, parts.database)
        return True

    sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, change)
    assert sync_next(parts.intake, parts.removal, parts.worker_counters, lambda tally: True) is not None
    assert sync_next(parts.intake, parts.removal, parts.worker_counters, lambda tally: True) is None


def test_it_ends_when_it_is_switched_off_paused_or_removed(parts: Parts, inbox: Path):
    source, tenant_id = connected(parts, str(inbox)), parts.default_collection.tenant_id
    watch = f"watching-{source.id[:8]}"
    with watching(parts):
        wait_until(lambda: now(parts, source).status == "synced" and threads_named(watch))
        change_data_source(tenant_id, source.id, parts.database, watch=False)
        wait_until(lambda: not threads_named(watch))
        before = syncs(parts, source)
        (inbox / "a.md").write_bytes(b"# A\n")
        time.sleep(0.4)
        assert syncs(parts, source) == before


def test_tenants_take_turns_in_what_a_worker_watches(parts: Parts, inbox: Path):
    """A tenant that comes later takes a place from one that has several."""
    folders = [inbox / name for name in ("a", "b", "c", "d")]
    for folder in folders:
        folder.mkdir()
    mine = [connected(parts, str(folder)) for folder in folders[:3]]
    watches = Watching(parts, 0.05, 0.1, 50, max_watched=2)
    watches.start()
    try:
        wait_until(lambda: refusals(parts, mine) == [False, False, True])
        other = ensure_collection(parts.database, "other")
        theirs = add_data_source(
            other.tenant_id, other.collection_id, str(folders[3]), 15, parts.database, parts.settings
        )
        wait_until(lambda: refusals(parts, mine) == [False, True, True])
        time.sleep(0.5)
        assert data_source_view(other.tenant_id, theirs.id, parts.database).watch_error is None

        change_data_source(other.tenant_id, theirs.id, parts.database, paused=True)
        wait_until(lambda: refusals(parts, mine) == [False, False, True])
    finally:
        watches.stop()
        wait_until(lambda: not threads_named("watching"))


def refusals(parts: Parts, sources: list[DataSourceView]) -> list[bool]:
    return ["already watches 2 folders" in str(now(parts, source).watch_error) for source in sources]


def test_what_is_watched_unless_somebody_says_so(parts: Parts, inbox: Path):
    """Folders with an interval. Who wants syncs by hand alone gets no others."""
    assert connected(parts, str(inbox)).watch
    assert not connected(parts, str(inbox / "by hand"), minutes=0).watch
    assert connected(parts, str(inbox / "watched alone"), minutes=0, watch=True).watch
    assert not connected(parts, "s3://bucket/x").watch
    with pytest.raises(Rejected, match="only folders can be watched"):
        connected(parts, "s3://bucket/y", watch=True)


def test_over_http(client: Client, parts: Parts, inbox: Path):
    made = client.post("/v1/data-sources", json={"location": str(inbox), "watch": False}).json()
    assert (made["watch"], made["watch_error"]) == (False, None)
    path = f"/v1/data-sources/{made['id']}"
    assert client.patch(path, json={"watch": True}).json()["watch"]
    assert "watched for changes" in client.get(f"/admin{path.removeprefix('/v1')}").text
    refused = client.post("/v1/data-sources", json={"location": "s3://bucket/x", "watch": True})
    assert refused.status_code == 422
