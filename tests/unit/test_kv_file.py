"""KV files: whole, checked, and named so that nobody can guess them."""

import errno
import os
import resource
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ragkv.errors import Corrupt, Unsupported
from ragkv.ids import utc_now
from ragkv.kv import pieces
from ragkv.kv.file import PARTIAL, load_kv, read_kept, read_kv, read_qcache, read_shape, write_kv
from ragkv.kv.format import KVFormat
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import LAYOUT_VERSION
from ragkv.kv.store import KVStore
from tests.support.made_kv import KEY, LAYOUT, loaded, some_kv, stored_kv
from tests.support.synced import synced


def test_what_was_written_is_what_is_read(tmp_path):
    kv = some_kv()
    size = write_kv(tmp_path / "x.safetensors", kv)
    read = loaded(read_kv(tmp_path / "x.safetensors", LAYOUT))
    assert size == (tmp_path / "x.safetensors").stat().st_size
    for name in ("keys", "values", "initial", "local", "mean_keys"):
        assert torch.equal(getattr(kv, name), getattr(read, name))


def test_a_kv_file_is_for_its_owner_alone_and_leaves_no_partial_behind(tmp_path):
    write_kv(tmp_path / "x.safetensors", some_kv())
    assert stat.S_IMODE((tmp_path / "x.safetensors").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_kv_file_is_on_disk_before_it_has_its_name_and_so_are_the_folders_made_for_it(tmp_path, monkeypatch):
    store, on_disk = KVStore(tmp_path / "kv"), synced(monkeypatch)

    store.put(KEY, some_kv())

    path = store.path(KEY)
    (file,) = [flushed for flushed in on_disk if flushed.name.endswith(PARTIAL)]
    assert file.name.startswith(f".{path.name}.")
    assert on_disk.index(file) < on_disk.index(path.parent)
    assert set(path.parents) - set(tmp_path.parents) <= set(on_disk)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    store, key = KVStore(tmp_path), "0" * 64
    store.path(key).mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        store.put(key, some_kv())

    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("position", [0, 7, 100, 0.5, -1])
def test_one_flipped_bit_anywhere_is_corrupt(tmp_path, position):
    path = tmp_path / "x.safetensors"
    write_kv(path, some_kv())
    data = bytearray(path.read_bytes())
    data[int(position * len(data)) if isinstance(position, float) else position] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt):
        read_kv(path, LAYOUT)


def test_every_truncation_is_corrupt(tmp_path):
    path = tmp_path / "x.safetensors"
    write_kv(path, some_kv())
    data = path.read_bytes()
    for length in (0, 1, 8, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(Corrupt):
            read_kv(path, LAYOUT)


def test_kv_of_another_layout_is_not_used_and_not_removed(tmp_path):
    """An engine on the wrong model must not destroy what the right one needs."""
    store = KVStore(tmp_path)
    store.put(KEY, some_kv(dtype=torch.float32))
    with pytest.raises(Unsupported, match="float32"):
        read_kv(store.path(KEY), LAYOUT)
    assert stored_kv(store, KEY, LAYOUT) is None
    assert KEY in store


@pytest.mark.parametrize("read", [load_kv, read_qcache, read_kept, read_shape])
def test_kv_in_the_layout_of_another_version_is_not_used_and_not_removed(tmp_path, monkeypatch, read):
    """Processes of both versions may run over one data folder during an upgrade."""
    store = KVStore(tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr("ragkv.kv.file.LAYOUT_VERSION", LAYOUT_VERSION - 1)
        store.put(KEY, some_kv())
    with pytest.raises(Unsupported, match="another version of ragkv wrote it"):
        read(store.path(KEY))
    assert stored_kv(store, KEY, LAYOUT) is None
    assert KEY in store


def test_a_file_that_cannot_be_opened_now_is_not_removed(tmp_path):
    """Running out of descriptors says nothing about a file."""
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        found = stored_kv(store, KEY, LAYOUT)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found is None
    assert stored_kv(store, KEY, LAYOUT) is not None


def test_a_page_that_cannot_be_read_is_a_miss_and_no_signal(tmp_path, monkeypatch):
    """A bad sector, or a stale handle of a network disk: read through a mapping, it ends the engine by SIGBUS, and with
    it all questions."""
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())

    def bad_sector(*_args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", bad_sector)
    assert store.open(KEY, LAYOUT) is None
    assert store.path(KEY).exists()  # what cannot be read now says nothing about what was written


def cut_short(path: Path) -> None:
    os.truncate(path, 8192)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def written_over(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(64))


@pytest.mark.parametrize("change", [cut_short, emptied, written_over])
def test_a_file_that_is_changed_while_it_is_checked_is_a_miss(tmp_path, monkeypatch, change):
    store = KVStore(tmp_path)
    store.put(KEY, some_kv(400))
    read = os.preadv

    def changed_after(*args):
        num_bytes = read(*args)
        monkeypatch.setattr(os, "preadv", read)
        change(store.path(KEY))
        return num_bytes

    monkeypatch.setattr(os, "preadv", changed_after)
    assert store.open(KEY, LAYOUT) is None


@pytest.mark.parametrize("change", [cut_short, emptied, written_over])
@pytest.mark.parametrize("kv_format", KVFormat)
def test_a_file_that_is_changed_after_it_was_checked_raises(tmp_path, change, kv_format):
    """Never a signal, and never other values than those that were checked: the engine recomputes what raises."""
    store = KVStore(tmp_path)
    store.put(KEY, some_kv(400), kv_format)
    kv = store.open(KEY, LAYOUT)
    change(store.path(KEY))
    out = [torch.empty(2, 20, 2, 8, dtype=LAYOUT.dtype) for _ in "kv"]

    with pytest.raises(OSError, match="changed while it was open"):
        kv.copy_into(*out, slice(0, 2), 0)
    with pytest.raises(OSError, match="changed while it was open"):
        loaded(kv)


CUT_SHORT_WHILE_IN_USE = """
import os, sys, torch
from pathlib import Path
from ragkv.kv.host import HostCache
from ragkv.kv.store import KVStore
from ragkv.kv.format import KVFormat
from tests.support.made_kv import KEY, LAYOUT, some_kv
from tests.support.synced import synced

store = KVStore(Path(sys.argv[1]))
store.put(KEY, some_kv(400))
kv = HostCache(store, 0).get(KEY, LAYOUT)
os.truncate(store.path(KEY), 8192)
try:
    kv.copy_into(*(torch.empty(6, 400, 2, 8, dtype=LAYOUT.dtype) for _ in "kv"), slice(0, 6), 0)
except OSError as error:
    print("raised:", error.strerror)
"""


def test_a_file_that_is_cut_short_while_the_engine_holds_it_does_not_end_its_process(tmp_path):
    """In a process of its own, as the failure is a signal."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT_WHILE_IN_USE, tmp_path], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "raised: the file was changed while it was open\n"), done.stderr


def test_a_file_that_is_deleted_or_replaced_after_it_was_checked_is_read_as_it_was(tmp_path):
    """As when its room is given to other KV, or a verification makes it again."""
    store, written = KVStore(tmp_path), some_kv()
    store.put(KEY, written)
    kv = store.open(KEY, LAYOUT)
    store.put(KEY, some_kv())
    store.delete([KEY])

    assert torch.equal(loaded(kv).keys, written.keys)


def num_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_file_is_closed_once_its_kv_is_let_go(tmp_path):
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())
    before = num_open()
    held = [store.open(KEY, LAYOUT) for _ in range(3)]
    assert num_open() == before + 3
    del held
    assert num_open() == before


@pytest.mark.parametrize("tokens", [7, 400])
@pytest.mark.parametrize("heads", [None, slice(1, 2)])
@pytest.mark.parametrize("dtype", [LAYOUT.dtype, torch.float32])
@pytest.mark.parametrize("converted", [1, pieces.CONVERTED])
def test_any_piece_of_a_file_is_what_was_written(tmp_path, monkeypatch, tokens, heads, dtype, converted):
    """Some layers and tokens, among others' tokens, of all heads or some, in the model's dtype or another."""
    monkeypatch.setattr(pieces, "CONVERTED", converted)
    store, written = KVStore(tmp_path), some_kv(tokens)
    store.put(KEY, written)
    kv = store.open(KEY, LAYOUT)
    if heads is not None:
        kv, written = kv.of_heads(heads), written.of_heads(heads)
    for layers, start, count in ((slice(0, 6), 0, tokens), (slice(2, 5), 3, 4), (slice(5, 6), 0, 1)):
        read, expected = (
            torch.zeros(2, layers.stop - layers.start, tokens + 9, *written.keys.shape[2:], dtype=dtype) for _ in "re"
        )
        rows = slice(5, 5 + count)
        kv.copy_into(*read[:, :, rows], layers, start)
        written.copy_into(*expected[:, :, rows], layers, start)
        assert torch.equal(read, expected)
    assert (tuple(kv.keys.shape), kv.keys.nbytes) == (tuple(written.keys.shape), written.keys.nbytes)


def test_the_q_cache_is_read_without_the_kv(tmp_path):
    store, kv = KVStore(tmp_path), some_kv()
    store.put(KEY, kv)
    kept = store.qcache(KEY)
    for name in ("initial", "local", "mean_keys"):
        assert torch.equal(getattr(kept, name), getattr(kv, name))
    assert store.qcache("cd" * 32) is None


OTHER = "cd" * 32


@pytest.mark.parametrize("read", ["open", "qcache", "shape"])
def test_a_file_under_another_key_is_a_miss_and_removed(tmp_path, read):
    """As after a restore that mixed them up: the same layout, as many tokens, sound checksums."""
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())
    store.path(OTHER).parent.mkdir()
    store.path(OTHER).write_bytes(store.path(KEY).read_bytes())
    arguments = (LAYOUT,) if read == "open" else ()
    assert getattr(store, read)(OTHER, *arguments) is None
    assert OTHER not in store
    assert getattr(store, read)(KEY, *arguments) is not None


def test_a_file_without_its_key_is_a_miss(tmp_path):
    path = tmp_path / "x.safetensors"
    write_kv(path, some_kv())
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        metadata = file.metadata()
    del metadata["key"]
    save_file(tensors, path, metadata)
    with pytest.raises(Corrupt, match="another key"):
        read_kv(path, LAYOUT)


def test_a_file_that_takes_the_place_of_a_corrupt_one_while_that_is_read_stays(tmp_path):
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())

    def damaged(path):
        store.put(KEY, some_kv())
        raise Corrupt("what was there before")

    assert store._use(KEY, damaged) is None
    assert stored_kv(store, KEY, LAYOUT) is not None


def test_a_corrupt_file_is_removed_so_that_it_is_made_again(tmp_path):
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())
    store.path(KEY).write_bytes(b"nonsense")
    assert stored_kv(store, KEY, LAYOUT) is None
    assert KEY not in store


@pytest.mark.parametrize("key", ["../../etc/passwd", "", "ab" * 31, "AB" * 32, KEY + "/x", KEY + "\n"])
def test_nothing_but_a_key_becomes_a_path(tmp_path, key):
    with pytest.raises(Corrupt):
        KVStore(tmp_path).path(key)


def test_the_store_lists_what_it_holds(tmp_path):
    store = KVStore(tmp_path)
    size = store.put(KEY, some_kv())
    assert list(store.keys()) == [KEY]
    assert store.bytes_of(KEY) == size
    store.delete([KEY, "cd" * 32])
    assert list(store.keys()) == []
    assert store.bytes_of(KEY) == 0


def test_only_a_file_that_is_there_is_used(tmp_path):
    store = KVStore(tmp_path)
    assert not store.touch(KEY)
    store.put(KEY, some_kv())
    os.utime(store.path(KEY), (1000, 500))
    assert [file.used for file in store.files()] == [1000]
    assert store.touch(KEY)
    assert next(store.files()).used > 1000


def test_files_that_were_not_finished_are_told_from_whole_ones(tmp_path):
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())
    folder = store.path(KEY).parent
    unfinished = {folder / f".{KEY}.safetensors.1.partial", folder / ".tmpUc2xQn"}
    for path in unfinished:
        path.write_bytes(b"x")

    assert set(store.partial(utc_now() + timedelta(seconds=1))) == unfinished
    assert not list(store.partial(utc_now() - timedelta(hours=1)))
    assert list(store.keys()) == [KEY]


def test_files_written_before_a_moment_are_told_from_later_ones(tmp_path):
    store = KVStore(tmp_path)
    store.put(KEY, some_kv())

    assert list(store.older_than(utc_now() + timedelta(seconds=1))) == [KEY]
    assert list(store.older_than(utc_now() - timedelta(hours=1))) == []


def keys(**changes):
    given = {"secret": b"s" * 32, "model": "m", "dtype": "bf16", "prefix_ids": (1, 2)}
    return KeyMaker(**(given | changes))


def test_a_key_depends_on_everything_the_kv_depends_on():
    made = [
        keys().chunk((3, 4)),
        keys().chunk((3, 5)),
        keys().chunk((4, 3)),
        keys(secret=b"t" * 32).chunk((3, 4)),
        keys(model="n").chunk((3, 4)),
        keys(dtype="f32").chunk((3, 4)),
        keys(prefix_ids=(1, 3)).chunk((3, 4)),
        keys(prefix_ids=(1, 2, 3)).chunk((4,)),
        keys().prefix(),
    ]
    assert len(set(made)) == len(made)
    assert keys().chunk((3, 4)) == made[0]


def test_no_key_or_salt_is_that_of_another_version_of_the_layout(monkeypatch):
    names = [keys().chunk((3, 4)), keys().prefix(), keys().salt("exact")]
    monkeypatch.setattr("ragkv.kv.key.LAYOUT_VERSION", LAYOUT_VERSION + 1)
    assert not {keys().chunk((3, 4)), keys().prefix(), keys().salt("exact")} & set(names)


def test_tenants_never_share_a_salt():
    assert keys().salt("exact") != keys(secret=b"t" * 32).salt("exact")
    assert keys().salt("exact") != keys().salt("stitched")
