"""The host tier: copies of KV that is used again, within their bytes, and never of a file that is gone."""

import math
import os
from pathlib import Path

import pytest
import torch

from ragkv.kv.format import KVFormat
from ragkv.kv.host import HostCache, bytes_of_copy
from ragkv.kv.quantise import Packed
from ragkv.kv.store import KVStore
from tests.support.made_kv import LAYOUT, some_kv, stored_kv

HEADER = 1024
"""Bytes of a file that are no tensor's, at most."""
A, B, C = "aa" * 32, "bb" * 32, "cc" * 32


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    store = KVStore(tmp_path)
    for key in (A, B, C):
        store.put(key, some_kv())
    return store


def tier_of(store: KVStore, chunks: float) -> HostCache:
    """With room for so many."""
    return HostCache(store, int(chunks * store.bytes_of(A)))


def use(tier: HostCache, *keys: str) -> None:
    for key in keys:
        assert tier.get(key, LAYOUT) is not None
        tier.settle()


def copied(tier: HostCache, key: str) -> bool:
    """Whether a copy is read: the same tensor twice."""
    first, second = tier.get(key, LAYOUT), tier.get(key, LAYOUT)
    return first is not None and first is second


def damage(path: Path, *, unnoticed: bool = False) -> None:
    """Change a bit of the last tensor. unnoticed: as a disk does, which does not change the time of the last change."""
    before = path.stat()
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)
    if unnoticed:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_is_used_again_is_copied_and_says_the_same(store: KVStore):
    tier = tier_of(store, 3)
    use(tier, A)
    assert tier.num_bytes == 0
    use(tier, A)

    assert 0 < store.bytes_of(A) - tier.num_bytes < HEADER
    assert torch.equal(tier.get(A, LAYOUT).keys, stored_kv(store, A, LAYOUT).keys)
    assert copied(tier, A)
    assert tier.in_memory(A)


@pytest.mark.parametrize("kv_format", [KVFormat.INT8, KVFormat.INT4])
def test_a_quantised_copy_is_quantised(store: KVStore, kv_format: KVFormat):
    store.put(A, some_kv(), kv_format)
    tier = tier_of(store, 3)
    use(tier, A, A)

    kv = tier.get(A, LAYOUT)
    assert copied(tier, A)
    assert isinstance(kv.keys, Packed)
    assert torch.equal(kv.keys.codes, stored_kv(store, A, LAYOUT).keys.codes)


def test_the_bytes_are_never_more_than_allowed_and_what_was_used_last_stays(store: KVStore):
    tier = tier_of(store, 2.5)
    use(tier, A, A, B, B)
    use(tier, A, C, C)

    assert 0 < 2 * store.bytes_of(A) - tier.num_bytes < 2 * HEADER
    assert (copied(tier, A), copied(tier, C)) == (True, True)
    assert not copied(tier, B)


def test_a_tier_holds_as_many_bytes_as_it_is_allowed_and_not_one_more(store: KVStore):
    tier = tier_of(store, 1)
    use(tier, A, A)
    for capacity, fits in ((tier.num_bytes, True), (tier.num_bytes - 1, False)):
        exact = HostCache(store, capacity)
        use(exact, A, A)

        assert copied(exact, A) == fits
    for capacity, both in ((2 * tier.num_bytes, True), (2 * tier.num_bytes - 1, False)):
        exact = HostCache(store, capacity)
        use(exact, A, A, B, B)

        assert copied(exact, B)
        assert copied(exact, A) == both


@pytest.mark.parametrize("kv_format", KVFormat)
def test_pinned_memory_is_counted_as_pytorch_takes_it(store: KVStore, kv_format: KVFormat):
    store.put(A, some_kv(), kv_format)
    kv = stored_kv(store, A, LAYOUT)
    parts = [kv.keys, kv.values] if kv_format is KVFormat.BF16 else []
    for packed in () if parts else (kv.keys, kv.values):
        parts += [packed.codes, packed.step, packed.edges, *(() if packed.low is None else (packed.low,))]
    sizes = [part.nbytes for part in (*parts, kv.initial, kv.local, kv.mean_keys) if part.nbytes]

    assert bytes_of_copy(kv, pinned=False) == sum(sizes)
    assert bytes_of_copy(kv, pinned=True) == sum(2 ** math.ceil(math.log2(size)) for size in sizes)


@pytest.mark.parametrize("chunks", [0, 0.5])
def test_without_room_nothing_is_copied(store: KVStore, chunks: float):
    tier = tier_of(store, chunks)
    use(tier, A, A, A)

    assert (tier.num_bytes, copied(tier, A)) == (0, False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine where no memory can be pinned")
def test_a_copy_that_cannot_be_made_is_told_and_what_there_is_stays(store: KVStore, caplog: pytest.LogCaptureFixture):
    tier = HostCache(store, 3 * store.bytes_of(A), pinned=True)

    use(tier, A, A)

    assert (tier.num_bytes, copied(tier, A)) == (0, False)
    assert "stays on disk alone" in caplog.text


def test_a_file_that_is_gone_or_another_has_no_copy(store: KVStore):
    tier = tier_of(store, 3)
    use(tier, A, A, B, B)
    store.delete([A])
    store.put(B, some_kv(7))

    assert tier.get(A, LAYOUT) is None
    assert tier.get(B, LAYOUT).num_tokens == 7
    assert not tier.in_memory(A)


def test_a_file_that_was_damaged_is_read_again_and_refused(store: KVStore):
    tier = tier_of(store, 3)
    use(tier, A, A)
    damage(store.path(A))

    assert tier.get(A, LAYOUT) is None


@pytest.mark.parametrize("kv_format", KVFormat)
def test_what_stays_in_memory_is_checked_once_and_what_comes_from_disk_each_time(store: KVStore, kv_format: KVFormat):
    store.put(A, some_kv(), kv_format)
    store.put(B, some_kv(), kv_format)
    tier = HostCache(store, 0)
    assert tier.get(A, LAYOUT, in_memory=True) is not None
    damage(store.path(A), unnoticed=True)
    damage(store.path(B), unnoticed=True)

    assert tier.get(A, LAYOUT, in_memory=True) is not None
    assert tier.get(B, LAYOUT, in_memory=True) is None, "never checked yet"
    assert tier.get(A, LAYOUT) is None


def test_a_file_in_memory_that_was_changed_is_checked_again(store: KVStore):
    tier = HostCache(store, 0)
    use(tier, A)
    damage(store.path(A))

    assert tier.get(A, LAYOUT, in_memory=True) is None


def test_a_copy_stays_while_its_file_is_used(store: KVStore):
    """A use is noted in the file's access time alone: by its modification time a file is told from another."""
    tier = tier_of(store, 3)
    use(tier, A, A)
    seen = store.path(A).stat()
    assert store.touch(A)

    assert store.path(A).stat().st_atime_ns > seen.st_atime_ns
    assert copied(tier, A)


@pytest.mark.parametrize("kv_format", KVFormat)
def test_a_rank_reads_and_copies_its_own_heads_alone(store: KVStore, kv_format: KVFormat):
    store.put(A, some_kv(), kv_format)
    whole, heads = stored_kv(store, A, LAYOUT), slice(1, 2)
    tier = HostCache(store, store.bytes_of(A), heads=heads)

    for _ in range(3):
        kv = tier.get(A, LAYOUT)
        tier.settle()
        expected, own = (
            [torch.empty(2, 5, n, LAYOUT.head_dim, dtype=LAYOUT.dtype) for _ in "kv"] for n in (LAYOUT.kv_heads, 1)
        )
        whole.copy_into(*expected, slice(1, 3), 2)
        kv.copy_into(*own, slice(1, 3), 2)
        assert all(torch.equal(mine, every[:, :, heads]) for mine, every in zip(own, expected, strict=True))
    assert copied(tier, A)
    assert tier.num_bytes < store.bytes_of(A)
