"""Promotion: what a question needs comes to disk in time, once, or is left to be recomputed."""

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragkv.answer.incoming import IncomingKV
from ragkv.answer.load_cost import LoadCost, Patience
from ragkv.answer.promote import Promoter, RemoteIndex
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Report
from ragkv.errors import NotFound, OutOfSpace, Unavailable
from ragkv.kv.key import KeyMaker
from ragkv.kv.remote import ObjectStore
from ragkv.kv.store import KVStore
from ragkv.object_store import StoreLocation
from ragkv.observe import metrics
from ragkv.stitch.located import locate
from tests.support.faulty_remote import FaultyRemote, corrupt, cut_short, fail
from tests.support.made_kv import some_kv

KEYS = KeyMaker(b"a secret", "model", "bfloat16", (1, 2, 3))


FAR_S = 60.0
"""Patience that no test uses up."""


class Counting:
    """An object store that counts what is asked of it, and answers while `answers` is set."""

    def __init__(self, remote):
        self.remote, self.fetched = remote, []
        self.answers = threading.Event()
        self.answers.set()

    def fetch(self, key, path):
        self.fetched.append(key)
        assert self.answers.wait(FAR_S)
        return self.remote.fetch(key, path)

    def __getattr__(self, name):
        return getattr(self.remote, name)


class World:
    """An object store with the KV of some chunks, and an empty folder before it."""

    def __init__(self, folder, num_chunks=4):
        self.objects = ObjectStore(StoreLocation((folder / "objects").as_uri()), lambda: "a service")
        self.remote = Counting(self.objects)
        self.store = KVStore(folder / "kv")
        self.chunks = [chunk(i) for i in range(num_chunks)]
        self.keys = [KEYS.chunk(one.token_ids) for one in self.chunks]
        self.sizes = {}
        self.lost = []
        writer = KVStore(folder / "writer")
        for key in (*self.keys, KEYS.prefix()):
            self.sizes[key] = writer.put(key, some_kv())
            self.objects.put(key, writer.path(key))
        del self.sizes[KEYS.prefix()]
        self.room_error = None

    def promoter(self, damage=None, base_s=5.0, per_token_s=0.0):
        remote = FaultyRemote(self.remote, damage) if damage else self.remote
        remote_index = RemoteIndex(self.lost.append, self.room)
        return Promoter(self.store, remote, remote_index, LoadCost(), Patience(base_s, per_token_s))

    def located(self, count=None):
        """The KV of the first of the chunks, all by default."""
        passages = [Passage(chunk, 1.0, 1) for chunk in self.chunks[:count]]
        return locate(passages, KEYS, self.store, self.remote_sizes)

    def remote_sizes(self, keys):
        return {key: self.sizes[key] for key in keys if key in self.sizes}

    @contextmanager
    def room(self, num_bytes):
        if self.room_error:
            raise self.room_error
        yield

    def there(self):
        return [key in self.store for key in self.keys]


def chunk(number):
    return Chunk(f"c{number}", "d", number, "Title", "text", 0, 4, None, tuple(range(number, number + 20)))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@contextmanager
def counted(**changes):
    """The promotions counted in the block, by outcome."""
    before = {name: _count(name) for name in changes}
    yield
    assert {name: _count(name) - before[name] for name in changes} == changes


def _count(outcome):
    return metrics._kv_promotions.labels(outcome)._value.get()


def test_the_kv_of_chunks_and_prefix_is_there_before_the_plan_is_made(world):
    with counted(in_time=5, late=0, failed=0):
        asyncio.run(world.promoter().bring(world.located()))
    assert all(world.there())
    assert KEYS.prefix() in world.store


def test_what_is_on_disk_is_used_now_and_nothing_is_asked(world):
    asyncio.run(world.promoter().bring(world.located()))
    world.remote.fetched.clear()
    for key in world.keys:
        os.utime(world.store.path(key), (0, 0))
    asyncio.run(world.promoter().bring(world.located(2)))
    assert world.remote.fetched == []
    assert [file.used > 0 for file in sorted(world.store.files(), key=lambda file: world_order(world, file.key))[:4]] == [
        True, True, False, False,
    ]  # fmt: skip


def world_order(world, key):
    return world.keys.index(key) if key in world.keys else len(world.keys)


@pytest.mark.parametrize(("repaired", "loads"), [(0.9, 5), (1.0, 0)])
def test_for_an_answer_that_recomputes_everything_nothing_is_loaded(world, repaired, loads):
    promoter = world.promoter()
    incoming = IncomingKV(world.store, promoter.cost, None, pytest.fail, promoter)
    located = asyncio.run(incoming.bring(world.located(), repaired))
    assert len(located.promoted) == len(world.remote.fetched) == loads
    assert len(located.missing) == 5 - loads


def test_any_number_of_questions_load_one_chunk_once(world):
    async def ask():
        promoter = world.promoter(lambda _: time.sleep(0.05))
        await asyncio.gather(*(promoter.bring(world.located(1)) for _ in range(32)))

    with counted(in_time=64):
        asyncio.run(ask())
    assert sorted(world.remote.fetched) == sorted([world.keys[0], KEYS.prefix()])


def test_what_comes_late_is_there_for_the_next_question(world):
    async def ask():
        promoter = world.promoter(base_s=0.05)
        world.remote.answers.clear()
        assert await promoter.bring(world.located()) == frozenset()
        world.remote.answers.set()
        await asyncio.wait(promoter._loading.values())
        assert all(world.there())

    with counted(in_time=0, late=5):
        asyncio.run(ask())
    assert len(world.remote.fetched) == 5


def test_a_question_that_is_cancelled_cancels_no_load(world):
    async def ask():
        promoter = world.promoter(base_s=FAR_S)
        world.remote.answers.clear()
        asked = asyncio.create_task(promoter.bring(world.located()))
        other = asyncio.create_task(promoter.bring(world.located()))
        while len(world.remote.fetched) < 5:  # noqa: ASYNC110 - by threads
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        world.remote.answers.set()
        await other

    asyncio.run(ask())
    assert all(world.there())


def test_no_question_waits_longer_than_computing_would_take(world):
    async def ask():
        promoter = world.promoter(base_s=FAR_S)
        promoter.cost.computed(1000, seconds=1.0)  # 80 tokens: 0.08 s
        world.remote.answers.clear()
        began = time.perf_counter()
        assert await promoter.bring(world.located()) == frozenset()
        assert 0.07 < time.perf_counter() - began < FAR_S / 2
        await asyncio.sleep(0.3)
        world.remote.answers.set()
        await asyncio.wait(promoter._loading.values())
        assert all(world.there())  # that measured the loads
        world.store.drop([*world.keys])
        world.remote.answers.clear()
        assert await promoter.bring(world.located()) == frozenset()
        world.remote.answers.set()
        await asyncio.wait(promoter._loading.values())

    with counted(late=5, not_awaited=4):
        asyncio.run(ask())


@pytest.mark.parametrize("damage", [fail, corrupt, cut_short])
def test_what_fails_is_recomputed_and_a_damaged_object_is_removed(world, damage):
    with counted(in_time=0, failed=5):
        asyncio.run(world.promoter(damage).bring(world.located()))
    assert not any(world.there())
    if damage is fail:
        assert world.lost == []
        return
    assert sorted(world.lost) == sorted([*world.keys, KEYS.prefix()])
    with pytest.raises(NotFound):
        world.store.fetch(world.keys[0], world.objects)


def test_an_object_that_is_gone_is_noted(world):
    world.objects.delete(world.keys)
    with counted(in_time=1, failed=4):
        asyncio.run(world.promoter().bring(world.located()))
    assert sorted(world.lost) == sorted(world.keys)


def test_of_a_share_that_is_unmounted_no_object_is_noted_as_gone(world, tmp_path):
    promoter = world.promoter()
    assert world.objects.has(world.keys[0])
    (tmp_path / "objects").rename(tmp_path / "unmounted")
    (tmp_path / "objects").mkdir()
    with counted(in_time=0, failed=5):
        asyncio.run(promoter.bring(world.located()))
    assert world.lost == []


@pytest.mark.parametrize("error", [OutOfSpace("full"), OSError(28, "No space left on device"), Unavailable("away")])
def test_a_disk_without_room_and_a_database_that_is_away_lose_nothing(world, error):
    world.room_error = error
    with counted(in_time=0, failed=5):
        asyncio.run(world.promoter().bring(world.located()))
    assert not any(world.there())
    assert world.remote.fetched == world.lost == []


def test_without_the_database_nothing_is_promoted(world):
    def away(keys):
        raise Unavailable("away")

    world.remote_sizes = away
    asyncio.run(world.promoter().bring(world.located()))
    assert world.remote.fetched == []


def test_a_damaged_answer_is_asked_for_once_more(world):
    damages = iter([corrupt])

    def damage(path):
        next(damages, Path.stat)(path)

    asyncio.run(world.promoter(damage).bring(world.located(1)))
    assert len(world.remote.fetched) == len([KEYS.prefix(), *world.chunks[:1]]) + 1
    assert world.there()[0]
    assert world.lost == []


def test_loads_are_estimated_as_latency_and_bandwidth():
    cost = LoadCost()
    assert cost.load_s([1], 16) is None
    assert cost.compute_s(100) is None
    for mib in (1, 2, 4, 8) * 5:
        cost.loaded(mib * 2**20, 0.05 + mib * 0.01)
    assert cost.load_s([16 * 2**20], 16) == pytest.approx(0.21)
    assert cost.load_s([2**20] * 17, 16) == pytest.approx(2 * 0.06)
    cost.computed(8, 100.0)  # too few to tell
    cost.computed(100, 1.0)
    assert cost.compute_s(200) == pytest.approx(2.0)


def test_only_a_prompt_computed_whole_tells_how_long_computing_takes():
    cost = LoadCost()
    cost.answered(Report(cached=3900, computed=100), 0.1)  # found in the cache, but for the question
    cost.answered(Report(stitched=3900, computed=100), 0.1)
    assert cost.compute_s(4000) is None
    cost.answered(Report(cached=64, computed=4000), 2.0)  # the prefix was there
    assert cost.compute_s(4000) == pytest.approx(2.0)


def test_loads_of_one_size_are_estimated_by_their_mean():
    cost = LoadCost()
    for _ in range(5):
        cost.loaded(2**20, 0.1)
    assert cost.load_s([2**20] * 3, 16) == pytest.approx(0.1)


def test_files_that_go_unused_are_counted(world):
    before = metrics.kv_wasted._value.get()
    promoter = world.promoter(lambda _: time.sleep(0.1), base_s=0.01)

    async def ask():
        await promoter.bring(world.located())
        await asyncio.wait(promoter._loading.values())
        await promoter.bring(world.located(1))

    asyncio.run(ask())
    promoter.dropped(world.keys)
    promoter.dropped(world.keys)
    assert metrics.kv_wasted._value.get() - before == 3
