"""One look at a question's KV, and what is done about files that come or go after it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ragkv.answer.planner import Planner
from ragkv.errors import Unavailable
from ragkv.kv.key import Making
from ragkv.kv.store import KVStore
from ragkv.stitch.located import locate
from tests.support.made_kv import chunk_kv
from tests.unit.test_compressed_kv import KEYS, NOTHING, PASSAGES, WHOLE, prompt_of, some_of

NAMES = [WHOLE.chunk(passage.chunk.token_ids) for passage in PASSAGES]


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    """A store with KV of the prefix and of all passages but the last."""
    store = KVStore(tmp_path)
    for key in (WHOLE.prefix(), *NAMES[:2]):
        store.put(key, chunk_kv())
    return store


def test_what_is_absent_has_all_keys_that_would_serve_the_best_first(store: KVStore):
    keys = replace(WHOLE, writer="new", writer_before="")
    located = locate(PASSAGES, keys, store)

    assert [passage.making.writer for passage in located.passages] == ["", "", "new"]
    ids = PASSAGES[2].chunk.token_ids
    assert located.passages[2].absent == tuple(keys.chunk(ids, making) for making in keys.makings)
    assert located.missing == {keys.chunk(ids)}


def test_a_file_that_goes_between_look_and_plan_is_left_to_the_engine(store: KVStore):
    """It recomputes the chunk and counts it: tests/engine/test_load_failures.py."""
    located = locate(PASSAGES, WHOLE, store)
    store.delete(NAMES[:1])
    plan = Planner(store).plan(prompt_of(located.passages), located, NOTHING, None)

    assert plan is not None
    assert (plan.placed[1].key, plan.num_missing) == (NAMES[0], 1)
    assert plan.num_without_kv([NAMES[0]]) == 2


def test_a_file_that_comes_between_look_and_plan_is_used_only_if_it_is_reported(store: KVStore):
    located = locate(PASSAGES, WHOLE, store)
    store.put(NAMES[2], chunk_kv())

    assert located.missing == {NAMES[2]}
    assert located.with_arrived(frozenset(), frozenset({NAMES[2]}), store).missing == frozenset()


def test_of_compressed_kv_that_has_arrived_the_tokens_that_are_left_are_known(store: KVStore):
    located = locate(PASSAGES[2:], KEYS, store)
    key = KEYS.chunk(PASSAGES[2].chunk.token_ids)
    store.put(key, some_of())
    arrived = located.with_arrived(frozenset({key}), frozenset(), store)

    assert (arrived.passages[0].offsets, arrived.promoted) == (store.kept(key), {key})
    assert arrived.passages[0].making == Making(compression=KEYS.compression)


def test_what_is_reported_but_gone_again_is_missing(store: KVStore):
    located = locate(PASSAGES, WHOLE, store)

    assert located.with_arrived(frozenset({NAMES[2]}), frozenset(), store).missing == {NAMES[2]}


def test_the_object_store_is_asked_for_absent_keys_alone_and_need_not_answer(store: KVStore):
    def away(keys: object) -> dict[str, int]:
        raise Unavailable("away")

    located = locate(PASSAGES, WHOLE, store, lambda keys: dict.fromkeys(keys, 9))
    assert located.remote == dict.fromkeys(located.passages[2].absent, 9)
    assert located.passages[2].serving(located.remote) == NAMES[2]
    assert locate(PASSAGES, WHOLE, store, away).remote == {}
