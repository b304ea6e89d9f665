"""KV files damaged in every way a disk, a crash or a mixed-up restore can: a miss, or exactly what was written."""

import errno
import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ragkv.kv.file import PlainKV
from ragkv.kv.store import KVStore
from tests.support.made_kv import LAYOUT, chunk_kv, stored_kv

KEY, OTHER = "a" * 64, "b" * 64
HEADER = struct.Struct("<Q")


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    """A store with the KV of KEY."""
    store = KVStore(tmp_path)
    store.put(KEY, chunk_kv())
    return store


def test_a_file_that_cannot_be_looked_at_is_not_there(store: KVStore, monkeypatch: pytest.MonkeyPatch):
    """As on a network disk whose handles are stale."""

    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    assert KEY in store
    monkeypatch.setattr(Path, "is_file", stale)
    assert KEY not in store


def is_same(kv: PlainKV) -> bool:
    written = chunk_kv()
    names = ("keys", "values", "initial", "local", "mean_keys")
    return all(torch.equal(getattr(kv, name), getattr(written, name)) for name in names)


def regions(content: bytes) -> dict[str, range]:
    """Where each part of a file lies: its header's length, the header, each tensor."""
    (length,) = HEADER.unpack_from(content)
    data = HEADER.size + length
    index = {name: entry for name, entry in json.loads(content[HEADER.size : data]).items() if name != "__metadata__"}
    tensors = {
        name: range(data + entry["data_offsets"][0], data + entry["data_offsets"][1]) for name, entry in index.items()
    }
    return {"length": range(HEADER.size), "header": range(HEADER.size, data), **tensors}


def read_after(store: KVStore, content: bytes) -> PlainKV | None:
    store.path(KEY).unlink(missing_ok=True)  # what was mapped before stays as it was
    store.path(KEY).write_bytes(content)
    return stored_kv(store, KEY, LAYOUT)


def test_a_flipped_bit_anywhere_is_a_miss_or_changes_nothing(store: KVStore):
    """Every byte of the header, its length and its checksums included; some of each tensor."""
    pick = random.Random(8)
    content = store.path(KEY).read_bytes()
    for name, region in regions(content).items():
        places = region if name in ("length", "header") else pick.sample(region, 12)
        misses = 0
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 1 << pick.randrange(8)
            kv = read_after(store, bytes(damaged))
            assert kv is None or is_same(kv), f"byte {place} of {name}"
            misses += kv is None
        assert misses == len(places) or name == "header", name


def test_a_file_cut_short_or_with_more_behind_it_is_a_miss(store: KVStore):
    pick = random.Random(8)
    content = store.path(KEY).read_bytes()
    edges = {edge for region in regions(content).values() for edge in (region.start, region.stop)} - {len(content)}
    for length in edges | {1, len(content) - 1} | {pick.randrange(len(content)) for _ in range(20)}:
        assert read_after(store, content[:length]) is None, length
    assert read_after(store, content + b"\0") is None


def test_zeroed_pages_are_a_miss(store: KVStore):
    """A crash before the data reached the disk, on a file system that does not order them."""
    content = store.path(KEY).read_bytes()
    for region in regions(content).values():
        damaged = content[: region.start] + bytes(len(region)) + content[region.stop :]
        assert read_after(store, damaged) is None


def _of_another_model(store: KVStore) -> None:
    store.put(KEY, chunk_kv(replace(LAYOUT, layers=3)))


def _of_another_dtype(store: KVStore) -> None:
    store.put(KEY, chunk_kv(replace(LAYOUT, dtype=torch.float16)))


def _a_folder(store: KVStore) -> None:
    store.path(KEY).unlink()
    store.path(KEY).mkdir()


def _under_another_name(store: KVStore) -> None:
    store.put(OTHER, chunk_kv(seed=1))
    store.path(OTHER).rename(store.path(KEY))


@pytest.mark.parametrize("put", [_of_another_model, _of_another_dtype, _a_folder, _under_another_name])
def test_a_file_that_is_not_this_chunks_is_a_miss(store: KVStore, put: Callable[[KVStore], None]):
    put(store)

    assert stored_kv(store, KEY, LAYOUT) is None


def test_what_is_damaged_is_made_again(store: KVStore):
    """The read that finds the damage removes the file, so that the next one makes it anew."""
    content = bytearray(store.path(KEY).read_bytes())
    content[-1] ^= 1
    assert read_after(store, bytes(content)) is None
    assert KEY not in store
    store.put(KEY, chunk_kv())

    kv = stored_kv(store, KEY, LAYOUT)
    assert kv is not None and is_same(kv)
