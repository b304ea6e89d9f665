"""Sparse prompts: which of the passages are read."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ragkv.answer.planner import Planner
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk, Passage
from ragkv.compression import Compression, CompressionMethod
from ragkv.kv.key import KeyMaker
from ragkv.kv.store import KVStore
from tests.unit.test_compressed_kv import some_of
from tests.unit.test_damaged_kv import LAYOUT, TOKENS, chunk_kv

KEYS = KeyMaker(b"s", "m", "bfloat16", (1, 2))
PASSAGES = [
    Passage(Chunk(str(i), "d", i, "", "text", 0, 4, None, tuple(range(100 * i, 100 * i + TOKENS))), 4.0 - i, 1)
    for i in range(4)
]
LITTLE, ALL = Recompute("question", 0.1, 4), Recompute("question", 1.0, 4)
QUESTION = torch.ones(len(LAYOUT.q_layers), LAYOUT.q_heads, LAYOUT.head_dim)


def keep(store: KVStore, passage: Passage, weight: float) -> None:
    """Keep KV to which the question attends by `weight`."""
    kv = chunk_kv()
    view = torch.zeros_like(kv.initial)
    kv = replace(kv, local=view, mean_keys=torch.full_like(kv.mean_keys, weight))
    store.put(KEYS.chunk(passage.chunk.token_ids), kv)


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    """The worse ranked, the more the question attends to it."""
    store = KVStore(tmp_path)
    for weight, passage in enumerate(PASSAGES):
        keep(store, passage, float(weight))
    return store


def read(store: KVStore, ratio: float, recompute: Recompute = LITTLE, keys: KeyMaker = KEYS) -> list[int]:
    found = Planner(store).to_read(PASSAGES, keys, recompute, ratio, QUESTION)
    return [passage.chunk.ordinal for passage in found]


def test_half_of_the_tokens_are_those_of_the_passages_that_the_question_attends_to(store: KVStore):
    assert read(store, 0.5) == [2, 3]
    assert read(store, 0.75) == [1, 2, 3]


def test_whole_passages_alone_and_one_at_least(store: KVStore):
    assert read(store, 0.7) == [2, 3]
    assert read(store, 0.01) == [3]


def test_a_passage_that_does_not_fit_makes_room_for_a_smaller_one(store: KVStore):
    long = replace(PASSAGES[2], chunk=replace(PASSAGES[2].chunk, token_ids=tuple(range(900, 900 + 2 * TOKENS))))
    kv = chunk_kv()
    store.put(
        KEYS.chunk(long.chunk.token_ids),
        replace(
            kv,
            **{name: torch.cat([getattr(kv, name)] * 2, 1) for name in ("keys", "values")},
            local=torch.zeros_like(kv.local),
            mean_keys=torch.full_like(torch.cat([kv.mean_keys] * 2)[:3], 2.5),
        ),
    )
    passages = [PASSAGES[0], PASSAGES[1], long, PASSAGES[3]]
    found = Planner(store).to_read(passages, KEYS, LITTLE, 0.5, QUESTION)
    assert [passage.chunk.ordinal for passage in found] == [1, 3]


def test_a_passage_without_kv_has_the_rank_of_retrieval(store: KVStore):
    store.delete([KEYS.chunk(PASSAGES[0].chunk.token_ids)])
    assert read(store, 0.25) == [0]
    assert read(store, 0.5) == [0, 3]
    store.delete(KEYS.chunk(passage.chunk.token_ids) for passage in PASSAGES)
    assert read(store, 0.5) == [0, 1]


def test_a_damaged_file_is_as_none(store: KVStore):
    path = store.path(KEYS.chunk(PASSAGES[0].chunk.token_ids))
    path.write_bytes(path.read_bytes()[:-1])
    assert read(store, 0.25) == [0]


def test_all_are_read_where_everything_is_recomputed_and_where_all_are_asked_for(store: KVStore):
    assert read(store, 0.5, ALL) == [0, 1, 2, 3]
    assert Planner(store).to_read(PASSAGES, KEYS, LITTLE, 1.0, None) == PASSAGES


def test_compressed_chunks_are_judged_by_what_is_left_of_them(store: KVStore):
    keys = replace(KEYS, compression=Compression(CompressionMethod.LAQ, 0.5))
    for weight, passage in zip((3.0, 2.0, 1.0, 0.0), PASSAGES, strict=True):
        kv = some_of()
        view = torch.zeros_like(kv.local)
        kv = replace(kv, local=view, mean_keys=torch.full_like(kv.mean_keys, weight))
        store.put(keys.chunk(passage.chunk.token_ids), kv)
    assert read(store, 0.5, keys=keys) == [0, 1]
