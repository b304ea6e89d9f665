"""Early reuse: what is being computed is awaited if that is sooner than recomputing, and a dead worker delays
nobody."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ragkv.answer.incoming import Coming, IncomingKV, worth_awaiting
from ragkv.answer.load_cost import LoadCost, Patience
from ragkv.chunk import Chunk, Passage
from ragkv.kv.key import KeyMaker, Making
from ragkv.kv.prefilling import FOLDER, AnnouncedBatch, Prefilling
from ragkv.kv.store import KVStore
from ragkv.observe import metrics
from ragkv.prefill.precompute import AHEAD_TOKENS, Announcer
from ragkv.stitch.located import locate
from tests.support.made_kv import some_kv

KEYS = KeyMaker(b"a secret", "model", "bfloat16", (1, 2, 3))
TOKENS = 100


def chunk(number):
    return Chunk(f"c{number}", "d", number, "Title", "text", 0, 4, None, tuple(range(number, number + TOKENS)))


CHUNKS = [chunk(number) for number in range(4)]
NAMES = [KEYS.chunk(one.token_ids) for one in CHUNKS]


@pytest.fixture
def store(tmp_path):
    return KVStore(tmp_path)


@pytest.fixture
def prefilling(tmp_path):
    return Prefilling(tmp_path)


@contextmanager
def announced(prefilling, *batches):
    announcement = prefilling.announce(batches)
    yield
    announcement.withdraw()


def batch(*keys, takes_s=1.0, ago_s=0.0):
    return AnnouncedBatch(keys, time.time() - ago_s, takes_s)


def reuse(store, token_s=0.01, most_s=10.0):
    cost = LoadCost()
    cost.computed(1000, 1000 * token_s)
    return IncomingKV(store, cost, Patience(most_s, 0.0))


def located(store, chunks=CHUNKS, keys=KEYS):
    return locate([Passage(chunk, 1.0, 1) for chunk in chunks], keys, store)


def waited(incoming, chunks=CHUNKS, repaired=0.0):
    began = time.perf_counter()
    asyncio.run(incoming.bring(located(incoming._store, chunks), repaired))
    return time.perf_counter() - began


def counts():
    return {
        name: metrics._kv_awaited.labels(name)._value.get() for name in ("in_time", "late", "not_awaited", "failed")
    }


@pytest.fixture
def counted():
    """The outcomes counted since the test began."""
    before = counts()
    return lambda: {name: number - before[name] for name, number in counts().items() if number > before[name]}


def coming(tokens_and_seconds):
    return [Coming(str(number), *one) for number, one in enumerate(tokens_and_seconds)]


@pytest.mark.parametrize(
    ("chunks", "chosen", "patience"),
    [
        ([], [], 0.0),
        ([(100, 2.0)], [], 0.0),  # recomputing takes 1 s
        ([(100, 0.4)], [0], 1.0),
        ([(100, 0.4), (100, 0.5)], [0, 1], 2.0),
        ([(100, 0.4), (100, 1.5)], [0], 1.0),  # 1.1 s more to wait, 1 s more saved
        ([(100, 1.5), (100, 1.5)], [0, 1], 2.0),  # none alone, both together
        ([(100, 9.0), (100, 0.4)], [1], 1.0),
    ],
)
def test_what_pays_to_wait_for_is_chosen(chunks, chosen, patience):
    seen = coming(chunks)
    found, seconds = worth_awaiting({one: one.tokens * 0.01 for one in seen})
    assert sorted(seen.index(one) for one in found) == chosen
    assert seconds == pytest.approx(patience)


def test_what_is_under_way_is_awaited_until_it_is_there(store, prefilling, counted):
    for name in NAMES[2:]:
        store.put(name, some_kv())
    with announced(prefilling, batch(*NAMES[:2], takes_s=5.0)):
        timer = threading.Timer(0.2, lambda: [store.put(name, some_kv()) for name in NAMES[:2]])
        timer.start()
        assert waited(reuse(store, token_s=0.1)) < 4.0
        timer.join()
    assert all(name in store for name in NAMES)
    assert counted() == {"in_time": 2}


def test_nobody_waits_longer_than_recomputing_takes(store, prefilling, counted):
    with announced(prefilling, batch(*NAMES[:1], takes_s=0.5)):
        assert waited(reuse(store, token_s=0.006)) > 0.5  # 100 tokens: 0.6 s
        assert counted() == {"late": 1}


def test_nobody_waits_longer_than_the_settings_say(store, prefilling, counted):
    with announced(prefilling, batch(*NAMES[:1], takes_s=5.0)):
        assert waited(reuse(store, token_s=0.1, most_s=0.05)) < 4.0
    assert counted() == {"late": 1}


def test_nobody_waits_longer_for_kv_that_is_not_awaited(store, prefilling, counted):
    """The longest wait is that of the chunks awaited: 0.05 s, where all that is computed would allow 5 s."""
    long = replace(CHUNKS[1], token_ids=tuple(range(100 * TOKENS)))
    cost = LoadCost()
    cost.computed(1000, 100.0)
    early = IncomingKV(store, cost, Patience(0.0, 0.0005))
    with announced(prefilling, batch(NAMES[0], takes_s=5.0), batch(KEYS.chunk(long.token_ids), takes_s=1e4)):
        assert waited(early, [CHUNKS[0], long]) < 4.0
    assert counted() == {"late": 1, "not_awaited": 1}


class Watched(KVStore):
    """Tells when it is looked into."""

    def __init__(self, folder):
        super().__init__(folder)
        self.looked = threading.Event()

    def __contains__(self, key):
        self.looked.set()
        return super().__contains__(key)


def test_nobody_waits_longer_for_the_looks_of_others(tmp_path, prefilling, counted):
    """Few threads look for any number of questions."""
    store, others = Watched(tmp_path), threading.Event()
    early = reuse(store, token_s=0.1, most_s=0.1)

    async def wait():
        waiting = asyncio.create_task(early.wait(located(KVStore(tmp_path)), 0.0))
        await asyncio.to_thread(store.looked.wait)
        looks = [asyncio.create_task(early._threads.run(others.wait, 30)) for _ in range(2)]
        try:
            await asyncio.wait_for(waiting, 10)
        finally:
            others.set()
            await asyncio.gather(*looks)

    with announced(prefilling, batch(*NAMES[:1], takes_s=5.0)):
        asyncio.run(wait())
    assert counted() == {"late": 1}


def test_what_is_recomputed_all_the_same_saves_nothing(store, prefilling, counted):
    with announced(prefilling, batch(*NAMES[:1], takes_s=5.0)):
        assert waited(reuse(store, token_s=0.09), repaired=0.5) < 4.0
    assert counted() == {"not_awaited": 1}


def test_kv_of_the_writer_before_is_not_replaced_while_somebody_waits(store, prefilling, counted):
    keys = replace(KEYS, writer="new", writer_before="old")
    new, old = (keys.chunk(CHUNKS[0].token_ids, making) for making in (Making("new"), Making("old")))
    store.put(old, some_kv())
    with announced(prefilling, batch(new)):
        asyncio.run(reuse(store, token_s=0.1).wait(located(store, CHUNKS[:1], keys), 0.0))
    assert counted() == {}


def test_of_kv_by_two_writers_that_of_the_present_one_is_awaited(store, prefilling, counted):
    keys = replace(KEYS, writer="new", writer_before="old")
    new, old = (keys.chunk(CHUNKS[0].token_ids, making) for making in (Making("new"), Making("old")))
    timer = threading.Timer(0.1, lambda: store.put(new, some_kv()))
    with announced(prefilling, batch(new, takes_s=5.0), batch(old, takes_s=5.0)):
        timer.start()
        asyncio.run(reuse(store, token_s=0.1).wait(located(store, CHUNKS[:1], keys), 0.0))
    timer.join()
    assert counted() == {"in_time": 1}


def test_what_takes_long_is_not_awaited_nor_what_nobody_could_estimate(store, prefilling, counted):
    with announced(prefilling, batch(*NAMES, takes_s=60.0)):
        assert waited(reuse(store)) < 4.0
    with announced(prefilling, batch(*NAMES)):
        assert waited(IncomingKV(store, LoadCost(), Patience(10.0, 0.0))) < 4.0
    assert counted() == {"not_awaited": 8}


def test_without_an_announcement_nothing_is_looked_up(store, prefilling, counted):
    assert not prefilling.any()
    waited(reuse(store))
    assert counted() == {}


def test_a_worker_that_ends_without_the_kv_ends_the_wait(store, prefilling, counted):
    announcement = prefilling.announce([batch(*NAMES, takes_s=5.0)])
    threading.Timer(0.1, announcement.withdraw).start()
    assert waited(reuse(store, token_s=0.1)) < 4.0
    assert counted() == {"failed": 4}


def test_a_worker_that_was_killed_delays_nobody(store, prefilling, counted):
    code = (
        "import sys, time; from pathlib import Path; from ragkv.kv.prefilling import AnnouncedBatch, Prefilling\n"
        f"Prefilling(Path({str(store.folder)!r})).announce([AnnouncedBatch(({NAMES[0]!r},), time.time(), 5.0)])\n"
        "print('announced', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline()
        assert prefilling.ready_in_s().keys() == {NAMES[0]}
        worker.send_signal(signal.SIGKILL)
    assert prefilling.any()
    assert waited(reuse(store, token_s=1.0)) < 4.0
    assert counted() == {}
    with announced(prefilling, batch(NAMES[1])):
        assert len(list((store.folder / FOLDER).iterdir())) == 1
    assert not prefilling.any()


def test_an_estimate_is_no_promise(prefilling):
    seconds = {}
    for ago in (0, 50, 100, 150, 210, -3600):
        with announced(prefilling, batch("a", takes_s=100, ago_s=ago)):
            seconds[ago] = prefilling.ready_in_s().get("a")
    assert seconds == {
        0: pytest.approx(100, abs=30), 50: pytest.approx(50, abs=30), 100: pytest.approx(10, abs=1), 150: pytest.approx(10),
        210: None, -3600: pytest.approx(3700, abs=30),
    }  # fmt: skip


@pytest.mark.parametrize("takes", [(100, 500), (500, 100)])
def test_kv_that_several_batches_compute_is_expected_from_the_soonest(prefilling, takes):
    with announced(prefilling, *(batch("a", takes_s=takes_s) for takes_s in takes)):
        assert prefilling.ready_in_s() == {"a": pytest.approx(100, abs=30)}


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"[[1]]", b'[["a"], 1, 2'])
def test_a_damaged_announcement_is_none(prefilling, content):
    with announced(prefilling, batch("a")):
        (file,) = (prefilling.folder / FOLDER).iterdir()
        file.write_bytes(content)
        assert prefilling.ready_in_s() == {}


def test_an_announcement_that_is_still_being_written_is_none(prefilling):
    with announced(prefilling, batch("a")):
        (file,) = (prefilling.folder / FOLDER).iterdir()
        file.rename(file.with_name(f".{file.name}"))
        assert prefilling.ready_in_s() == {}


def test_an_announcement_that_is_replaced_while_it_is_read_is_found(prefilling):
    done = threading.Event()

    def replace_often():
        announcement = prefilling.announce([batch("a")])
        while not done.wait(0.02):
            before, announcement = announcement, prefilling.announce([batch("a")])
            before.withdraw()
        announcement.withdraw()

    worker = threading.Thread(target=replace_often)
    worker.start()
    while not prefilling.any():
        time.sleep(0.001)
    found = ["a" in prefilling.ready_in_s() for _ in range(3000)]
    done.set()
    worker.join()
    assert all(found)


def test_a_folder_that_cannot_be_written_announces_nothing(tmp_path):
    (tmp_path / FOLDER).write_text("a file in its place")
    with announced(Prefilling(tmp_path), batch("a")):
        assert not Prefilling(tmp_path).any()
    assert not Prefilling(Path("/dev/null/nowhere")).any()


def test_batches_are_announced_at_the_rate_of_those_before(prefilling):
    announcer = Announcer(prefilling, prefix_tokens=3)
    batches = [[(name, one)] for name, one in zip(NAMES, CHUNKS, strict=True)]
    announcer.under_way(batches)
    assert not prefilling.any()
    time.sleep(0.2)
    announcer.under_way(batches[1:])
    assert list(prefilling.ready_in_s()) == NAMES[1:]
    (file,) = (prefilling.folder / FOLDER).iterdir()
    one, two, three = (takes_s for _, _, takes_s in json.loads(file.read_bytes()))
    assert one > 0.15
    assert (two, three) == pytest.approx((2 * one, 3 * one))
    announcer.under_way(batches[2:])
    assert list(prefilling.ready_in_s()) == NAMES[2:]
    announcer.under_way(())
    assert not prefilling.any()


def test_no_more_is_announced_than_a_question_could_wait_for(prefilling):
    announcer = Announcer(prefilling, prefix_tokens=3)
    batches = [[(str(number), chunk(number))] for number in range(1000)]
    announcer.under_way(batches)
    announcer.under_way(batches[1:])
    (file,) = (prefilling.folder / FOLDER).iterdir()
    assert len(json.loads(file.read_bytes())) == AHEAD_TOKENS // (TOKENS + 3)
    announcer.under_way(())
