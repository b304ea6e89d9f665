"""The object store, over a real S3 protocol and over a folder: whole objects, one owner, and errors told apart."""

import re
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import obstore
import pytest

from ragkv.errors import Corrupt, NotFound, Rejected, Unavailable
from ragkv.kv.file import write_kv
from ragkv.kv.remote import FAILURES, MARKER, ObjectStore
from ragkv.kv.store import KVStore
from ragkv.object_store import StoreLocation, opened
from tests.support.faulty_remote import FaultyRemote, corrupt, cut_short
from tests.support.made_kv import KEY, LAYOUT, some_kv, stored_kv
from tests.support.silent_server import silent_server

OTHER_KEY = "cd" * 32


@pytest.fixture(params=["s3", "file"])
def place(request, tmp_path):
    return (
        request.getfixturevalue("s3_place") if request.param == "s3" else StoreLocation((tmp_path / "objects").as_uri())
    )


@pytest.fixture
def remote(place):
    return ObjectStore(place, lambda: "a service")


@pytest.fixture
def store(tmp_path, remote):
    return KVStore(tmp_path / "kv", remote)


@pytest.fixture
def other_store(tmp_path, remote):
    return KVStore(tmp_path / "other", remote)


def test_a_file_comes_back_as_it_was_whatever_folder_it_is_for(store, other_store, remote):
    store.put(KEY, some_kv())
    remote.put(KEY, store.path(KEY))
    assert other_store.fetch(KEY, remote) == store.bytes_of(KEY)
    assert other_store.path(KEY).read_bytes() == store.path(KEY).read_bytes()
    assert stored_kv(other_store, KEY, LAYOUT) is not None
    assert [(each.key, each.num_bytes) for each in remote.objects()] == [(KEY, store.bytes_of(KEY))]


def test_deleting_removes_file_and_object_and_dropping_the_file_alone(store, other_store, remote):
    store.put(KEY, some_kv())
    remote.put(KEY, store.path(KEY))
    store.drop([KEY])
    assert KEY not in store
    assert store.fetch(KEY, remote)
    store.delete([KEY, OTHER_KEY])
    assert KEY not in store
    assert list(remote.objects()) == []
    with pytest.raises(NotFound):
        store.fetch(KEY, remote)
    assert list(store.partial(before=_later())) == []


@pytest.mark.parametrize("damage", [cut_short, corrupt])
def test_a_damaged_object_never_becomes_a_file(store, remote, damage):
    store.put(KEY, some_kv())
    remote.put(KEY, store.path(KEY))
    store.drop([KEY])
    with pytest.raises(Corrupt):
        store.fetch(KEY, FaultyRemote(remote, damage))
    assert KEY not in store


def test_another_keys_object_is_corrupt(store, remote):
    store.put(KEY, some_kv())
    remote.put(OTHER_KEY, store.path(KEY))
    with pytest.raises(Corrupt, match="another key"):
        store.fetch(OTHER_KEY, remote)


def test_a_place_of_another_service_is_not_used(place, store, remote, tmp_path):
    store.put(KEY, some_kv())
    remote.put(KEY, store.path(KEY))
    stranger = ObjectStore(place, lambda: "another service")
    for use in (
        lambda: stranger.put(KEY, store.path(KEY)),
        lambda: stranger.delete([KEY]),
        lambda: list(stranger.objects()),
    ):
        with pytest.raises(Unavailable, match="another service"):
            use()
    assert [each.key for each in remote.objects()] == [KEY]


def test_a_place_with_other_things_is_not_written_to(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"a photo")
    write_kv(tmp_path / "x.safetensors", some_kv())
    remote = ObjectStore(StoreLocation((tmp_path / "photos").as_uri()), lambda: "a service")
    with pytest.raises(Unavailable, match=r"other objects here, such as 'a\.jpg'"):
        remote.put(KEY, tmp_path / "x.safetensors")
    assert not (tmp_path / "photos" / MARKER).exists()


def test_before_anything_was_uploaded_nothing_is_there_and_nothing_counts_as_lost(store, remote):
    remote.delete([KEY])
    assert list(remote.objects()) == []
    with pytest.raises(Unavailable, match="no KV of this service yet"):
        store.fetch(KEY, remote)


def test_a_bucket_that_there_is_not_is_unavailable(s3_place, store, caplog):
    """The log says why."""
    store.put(KEY, some_kv())
    nowhere = ObjectStore(replace(s3_place, url="s3://nowhere-to-be-found/x"), lambda: "a service")
    with pytest.raises(Unavailable, match="no such bucket: check its name"):
        nowhere.put(KEY, store.path(KEY))
    assert re.search("NoSuchBucket|Not Found", caplog.text)


def test_a_bucket_that_goes_after_an_upload_is_unavailable_and_no_file_is_said_to_be_gone(s3_place, store):
    remote = ObjectStore(s3_place, lambda: "a service")
    store.put(KEY, some_kv())
    remote.put(KEY, store.path(KEY))
    remote.delete([KEY])
    obstore.delete(remote._store, [MARKER])
    httpx.delete(f"{s3_place.endpoint}/{s3_place.url.split('/')[2]}").raise_for_status()
    with pytest.raises(Unavailable):
        remote.put(KEY, store.path(KEY))


@pytest.fixture
def share(tmp_path, store):
    """A folder with the KV of one chunk, and a way to unmount it."""
    folder = tmp_path / "share"
    store.put(KEY, some_kv())
    ObjectStore(StoreLocation(folder.as_uri()), lambda: "a service").put(KEY, store.path(KEY))
    return folder


def _unmount(share):
    share.rename(share.with_name("unmounted"))
    share.mkdir()


@pytest.mark.parametrize(
    "use",
    [
        lambda remote, store: store.fetch(KEY, remote),
        lambda remote, store: remote.has(KEY),
        lambda remote, store: remote.put(OTHER_KEY, store.path(KEY)),
    ],
    ids=["fetch", "has", "put"],
)
def test_a_share_that_is_unmounted_is_unavailable_until_it_is_back(share, store, monkeypatch, use):
    """It says of every object that there is none."""
    monkeypatch.setattr("ragkv.kv.remote.PAUSE_S", 0.0)
    remote = ObjectStore(StoreLocation(share.as_uri()), lambda: "a service", lambda: True)
    assert remote.has(KEY)
    _unmount(share)
    with pytest.raises(Unavailable, match=f"{MARKER}.* not there: mount the share"):
        use(remote, store)
    assert list(share.iterdir()) == []

    share.rmdir()
    share.with_name("unmounted").rename(share)
    use(remote, store)
    assert remote.has(KEY)


def test_a_place_that_lost_its_marker_is_no_new_one(share, store):
    _unmount(share)
    with pytest.raises(Unavailable, match="ragkv fsck --repair"):
        ObjectStore(StoreLocation(share.as_uri()), lambda: "a service", lambda: True).put(KEY, store.path(KEY))
    assert list(share.iterdir()) == []


class Silent(socketserver.BaseRequestHandler):
    """Closes each connection without an answer, and notes it."""

    def handle(self):
        self.server.connections += 1


def test_a_store_that_is_away_is_not_asked_again_at_once(s3_place, store, monkeypatch):
    monkeypatch.setattr("ragkv.kv.remote.PAUSE_S", 600.0)
    store.put(KEY, some_kv())
    with socketserver.TCPServer(("127.0.0.1", 0), Silent) as server:
        server.connections = 0
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        away = ObjectStore(
            replace(s3_place, endpoint=f"http://127.0.0.1:{server.server_address[1]}"), lambda: "a service"
        )
        for _ in range(FAILURES):
            with pytest.raises(Unavailable):
                away.put(KEY, store.path(KEY))
        asked = server.connections
        with pytest.raises(Unavailable):
            away.put(KEY, store.path(KEY))
        server.shutdown()
        thread.join()
    assert server.connections == asked >= FAILURES


def test_a_store_that_hangs_is_asked_by_one_at_a_time(s3_place, monkeypatch):
    monkeypatch.setattr("ragkv.kv.remote.PAUSE_S", 0.0)
    with silent_server() as silent:
        place = replace(s3_place, endpoint=f"http://127.0.0.1:{silent.port}")
        hanging = ObjectStore(place, lambda: "a service")
        hanging._store = opened(place, timedelta(seconds=1))
        for _ in range(FAILURES):
            with pytest.raises(Unavailable):
                hanging.has(KEY)
        silent.connections()
        with ThreadPoolExecutor(8) as threads:
            for attempt in [threads.submit(hanging.has, KEY) for _ in range(8)]:
                assert isinstance(attempt.exception(), Unavailable)
        assert silent.connections() == 1


def test_a_file_that_cannot_be_read_is_no_fault_of_the_store(store, remote):
    store.put(KEY, some_kv())
    for _ in range(FAILURES):
        with pytest.raises(OSError, match="Errno"):
            remote.put(OTHER_KEY, Path("/proc/self/mem"))
    remote.put(KEY, store.path(KEY))
    assert [each.key for each in remote.objects()] == [KEY]


@pytest.mark.parametrize("url", ["nonsense", "ftp://host/x", "az://account/container/x", "memory:///x"])
def test_a_url_that_names_no_store_is_refused(url):
    with pytest.raises(Rejected, match="RAGKV_KV_REMOTE"):
        ObjectStore(StoreLocation(url), lambda: "a service")


def _later():
    from ragkv.ids import utc_now

    return utc_now().replace(year=utc_now().year + 1)
