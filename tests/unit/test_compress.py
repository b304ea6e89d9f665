"""Compression inside a chunk: the scores of each method, and what stays, against plain loops."""

import pytest
import torch

from ragkv.kv.file import PlainKV, block_means, left_of
from ragkv.kv.format import QCACHE_BLOCK
from ragkv.kv.layout import Layout
from ragkv.kv.rule import COMPRESSING, Compression, CompressionMethod
from ragkv.stitch.compression import LAQ_KERNEL, METHODS, SINKS, SNAPKV_KERNEL, WINDOW, ChunkView, kept_tokens

LAYOUT = Layout(layers=3, q_heads=4, kv_heads=2, head_dim=8, dtype=torch.float32)
PREFIX, TOKENS, BEHIND, DECODED = 7, 51, 7, 4


@pytest.fixture(scope="module")
def view() -> ChunkView:
    """Sharp attention: that of evenly drawn vectors is nearly even."""
    drawn = torch.Generator().manual_seed(0)
    behind = TOKENS + BEHIND
    queries = [torch.randn(behind, 4, 8, generator=drawn) * 3 for _ in range(3)]
    keys = [torch.randn(PREFIX + behind, 2, 8, generator=drawn) for _ in range(3)]
    return ChunkView(PREFIX, TOKENS, DECODED, queries, keys)


def weights(view: ChunkView, method: str) -> torch.Tensor:
    return view.weights(METHODS[method].asked(view.num_tokens, BEHIND, view.num_decoded))


def attention(view: ChunkView, query: int) -> list[float]:
    """Attention of a query to each token of the chunk, mean over heads and layers, one softmax at a time."""
    seen = view.num_prefix + query + 1
    means = [0.0] * seen
    for queries, keys in zip(view.queries, view.keys, strict=True):
        for head in range(4):
            scores = [float(queries[query, head] @ keys[place, head // 2]) / 8**0.5 for place in range(seen)]
            for place, weight in enumerate(torch.tensor(scores).softmax(0).tolist()):
                means[place] += weight / 12
    return [*means, *[0.0] * TOKENS][view.num_prefix : view.num_prefix + TOKENS]


def smoothed(scores: list[float], kernel: int) -> list[float]:
    half = kernel // 2
    return [max(scores[max(0, i - half) : i + half + 1]) for i in range(len(scores))]


def reference_scores(method: str, view: ChunkView) -> list[float]:
    behind = TOKENS + BEHIND
    asked = {
        "h2o": range(TOKENS),
        "snapkv": range(TOKENS - WINDOW, TOKENS),
        "laq": range(behind - DECODED, behind),
    }[method]
    rows = [attention(view, query) for query in asked]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    if method == "h2o":
        return sums
    return smoothed([score / len(asked) for score in sums], SNAPKV_KERNEL if method == "snapkv" else LAQ_KERNEL)


@pytest.mark.parametrize("method", ["h2o", "snapkv", "laq"])
def test_scores_are_those_of_plain_loops_over_attention(view: ChunkView, method: str):
    scores = METHODS[method].score(weights(view, method))
    torch.testing.assert_close(scores, torch.tensor(reference_scores(method, view)), atol=1e-4, rtol=1e-3)


def kept(method: str, view: ChunkView, keep: float) -> list[int]:
    return kept_tokens(Compression(CompressionMethod(method), keep), weights(view, method))


def test_a_share_of_each_chunk_stays_in_its_order(view: ChunkView, subtests):
    for method in COMPRESSING:
        for keep in [0.01, 0.3, 0.5, 0.99]:
            with subtests.test(method=method, keep=keep):
                offsets = kept(method, view, keep)
                assert offsets == sorted(set(offsets))
                assert set(offsets) <= set(range(TOKENS))
                assert len(offsets) == max(1, round(keep * TOKENS))


def test_streaming_keeps_the_first_and_the_last(view: ChunkView):
    assert kept("streaming", view, 0.5) == [*range(SINKS), *range(51 - 26 + SINKS, 51)]


def test_half_of_what_h2o_keeps_is_recent_and_the_rest_has_most_attention(view: ChunkView):
    scores = METHODS[CompressionMethod.H2O].score(weights(view, "h2o"))[: 51 - 13]
    heavy = sorted(scores.sort(descending=True).indices[:13].tolist())
    assert kept("h2o", view, 0.5) == [*heavy, *range(51 - 13, 51)]


def test_snapkv_keeps_its_window_but_never_more_than_half_of_the_budget(view: ChunkView):
    assert kept("snapkv", view, 0.9)[-WINDOW:] == list(range(51 - WINDOW, 51))
    assert kept("snapkv", view, 0.2)[-5:] == list(range(46, 51))
    assert len(kept("snapkv", view, 0.2)) == 10


def test_what_is_left_is_like_a_chunk():
    """Its keys and values are those of the whole; the Q-Cache's blocks are of what is left."""
    shape = (LAYOUT.layers, TOKENS, LAYOUT.kv_heads, LAYOUT.head_dim)
    keys, values = torch.randn(shape), torch.randn(shape)
    initial, local = torch.randn(1, 4, 8), torch.randn(1, 4, 8)
    whole = PlainKV(keys, values, initial, local, block_means(keys, LAYOUT.q_layers))
    offsets = list(range(1, 51, 2))

    left = left_of(whole, offsets, LAYOUT)

    assert left.num_tokens == len(offsets)
    assert left.kept.tolist() == offsets
    torch.testing.assert_close(left.keys, keys[:, offsets])
    torch.testing.assert_close(left.values, values[:, offsets])
    assert left.initial is initial and left.local is local
    chosen = keys[LAYOUT.q_layers.start : LAYOUT.q_layers.stop, offsets[:QCACHE_BLOCK]]
    torch.testing.assert_close(left.mean_keys[0], chosen.mean(1))
    assert len(left.mean_keys) == 2
