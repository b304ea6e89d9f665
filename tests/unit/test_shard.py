"""Heads as vLLM shares them out among the ranks of a tensor-parallel engine."""

import pytest
import torch

from ragkv.errors import Unsupported
from ragkv.kv.layout import Layout, Shard


def layout(q_heads: int, kv_heads: int) -> Layout:
    return Layout(layers=2, q_heads=q_heads, kv_heads=kv_heads, head_dim=4, dtype=torch.float32)


@pytest.mark.parametrize(
    ("heads", "size", "kv", "num_q"),
    [
        ((8, 4), 2, [[0, 1], [2, 3]], 4),
        ((8, 4), 4, [[0], [1], [2], [3]], 2),
        ((9, 3), 1, [[0, 1, 2]], 9),
        ((8, 2), 4, [[0], [0], [1], [1]], 2),
        ((4, 1), 2, [[0], [0]], 2),
    ],
)
def test_a_query_head_is_one_ranks_and_a_kv_head_is_with_each_rank_that_asks_it(
    heads: tuple[int, int], size: int, kv: list[list[int]], num_q: int
):
    shards = [Shard(layout(*heads), rank, size) for rank in range(size)]
    assert [list(range(heads[1]))[shard.kv_heads] for shard in shards] == kv
    assert all((shard.layout.kv_heads, shard.layout.q_heads) == (len(kv[0]), num_q) for shard in shards)


@pytest.mark.parametrize(
    ("heads", "size"), [((9, 3), 2), ((8, 3), 2), ((12, 6), 4), ((8, 8), 3), ((12, 2), 3), ((6, 2), 4)]
)
def test_heads_that_cannot_be_shared_out_are_refused(heads: tuple[int, int], size: int):
    with pytest.raises(Unsupported, match="RAGKV_TENSOR_PARALLEL_SIZE"):
        Shard(layout(*heads), size=size)
