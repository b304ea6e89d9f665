"""KV of the writer before serves until the present one's is there."""

from pathlib import Path

import pytest

from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.kv.key import KeyMaker
from ragkv.kv.store import KVStore
from ragkv.span import Span
from ragkv.stitch.located import locate
from ragkv.stitch.plan import StitchPlan
from tests.support.made_kv import chunk_kv

CHUNKS = [Chunk(str(i), "d", i, "", "", 0, 0, None, (i, i + 1)) for i in range(2)]
PROMPT = Prompt(tuple(range(8)), Span(0, 2), (Span(2, 4), Span(4, 6)), Span(6, 8))
NEW, OLD = "new", "old"


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    store = KVStore(tmp_path)
    store.put(keys(NEW).prefix(), chunk_kv())
    return store


def keys(writer: str, before: str | None = None) -> KeyMaker:
    return KeyMaker(b"s", "m", "bfloat16", (1, 2), writer, before)


def put(store: KVStore, index: int, writer: str) -> None:
    store.put(keys(writer).chunk(CHUNKS[index].token_ids), chunk_kv())


def plan(store: KVStore, keys: KeyMaker) -> StitchPlan:
    passages = [Passage(chunk, 1.0, 1) for chunk in CHUNKS]
    plan = Planner(store).plan(PROMPT, locate(passages, keys, store), Recompute("none", 0.0, 4), None)
    assert plan is not None
    return plan


@pytest.mark.parametrize("before", [OLD, ""], ids=["another", "the plain model"])
def test_it_is_stitched_where_the_new_one_is_missing(store: KVStore, before: str) -> None:
    put(store, 0, NEW)
    put(store, 1, before)

    mixed = plan(store, keys(NEW, before))

    assert mixed.num_missing == 0
    assert mixed.placed[2].key == keys(before).chunk(CHUNKS[1].token_ids)
    assert mixed.exact_end == PROMPT.prefix.end


def test_the_new_one_is_preferred_and_named_as_if_there_had_been_no_other(store: KVStore) -> None:
    for index in range(2):
        put(store, index, OLD)
        put(store, index, NEW)

    assert plan(store, keys(NEW, OLD)) == plan(store, keys(NEW))


def test_once_the_plain_model_writes_again_the_first_chunk_is_exact_only_if_it_wrote_all(store: KVStore) -> None:
    for index in range(2):
        put(store, index, OLD)
    old = plan(store, keys("", OLD))
    for index in range(2):
        put(store, index, "")
    plain = plan(store, keys("", OLD))

    assert (old.exact_end, plain.exact_end) == (PROMPT.prefix.end, PROMPT.chunks[0].end)
    assert old.cache_variant != plain.cache_variant


def test_kv_by_different_writers_is_never_found_as_the_same(store: KVStore) -> None:
    put(store, 0, OLD)
    put(store, 1, NEW)
    one = plan(store, keys(NEW, OLD)).cache_variant
    put(store, 0, NEW)
    other = plan(store, keys(NEW, OLD)).cache_variant

    assert one != other


def test_a_chunk_that_none_wrote_is_missing(store: KVStore) -> None:
    put(store, 0, NEW)

    assert plan(store, keys(NEW, OLD)).num_missing == 1
