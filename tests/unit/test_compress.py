"""Compression inside a chunk, against the model's own attention maps and plain loops over them."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from ragkv.chunk import Chunk
from ragkv.kv.format import QCACHE_BLOCK
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import layout_of
from ragkv.kv.rule import COMPRESSING, Compression, CompressionMethod
from ragkv.kv.store import KVStore
from ragkv.prefill.compressor import Compressor, rows_of
from ragkv.prefill.methods import LAQ_KERNEL, METHODS, SINKS, SNAPKV_KERNEL, WINDOW, kept_tokens
from ragkv.prefill.precompute import precompute
from ragkv.prefill.prefill import Prefiller
from ragkv.prefill.view import Watcher

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
CONFIGS = [LlamaConfig(**TINY), Qwen3Config(**TINY, head_dim=16)]
PREFIX = list(range(5, 12))
CHUNKS = [list(range(20, 71)), list(range(60, 65)), list(range(30, 53))]
CUE = (90, 91, 92)
DECODED = 4


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda config: config.model_type)
def model(request) -> PreTrainedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(request.param, attn_implementation="eager").to(torch.float32).eval()
    with torch.no_grad():  # sharp attention: a random model's is nearly even
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(40)
    return model


@pytest.fixture(scope="module")
def views(model):
    return Watcher(copy.deepcopy(model), PREFIX, CUE, DECODED).views(CHUNKS)


@torch.no_grad()
def attention_maps(model: PreTrainedModel, chunk: list[int]) -> list[torch.Tensor]:
    """A map [heads, tokens, tokens] a layer of one text: prefix, chunk, cue, and what is decoded greedily, each token
    from scratch."""
    ids = [*PREFIX, *chunk, *CUE]
    for _ in range(DECODED):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return [layer[0] for layer in model(torch.tensor([ids]), output_attentions=True).attentions]


def mean_weight(maps: list[torch.Tensor], queries: range, token: int) -> float:
    """Attention to a token of the chunk, mean over queries, heads and layers."""
    weights = [
        float(head[query, len(PREFIX) + token])
        for layer in maps
        for head in layer
        for query in (len(PREFIX) + number for number in queries)
    ]
    return sum(weights) / len(weights)


def smoothed(scores: list[float], kernel: int) -> list[float]:
    half = kernel // 2
    return [max(scores[max(0, i - half) : i + half + 1]) for i in range(len(scores))]


def reference_scores(method: CompressionMethod, maps: list[torch.Tensor], num_tokens: int) -> list[float]:
    behind = num_tokens + len(CUE)
    asked = {
        "h2o": range(num_tokens),
        "snapkv": range(max(0, num_tokens - WINDOW), num_tokens),
        "laq": range(behind, behind + DECODED),
    }[method]
    scores = [mean_weight(maps, asked, token) for token in range(num_tokens)]
    if method == "h2o":
        return [score * num_tokens for score in scores]
    return smoothed(scores, SNAPKV_KERNEL if method == "snapkv" else LAQ_KERNEL)


@pytest.mark.parametrize("method", ["h2o", "snapkv", "laq"])
def test_scores_are_those_of_plain_loops_over_attention_maps(model, views, method):
    for chunk, view in zip(CHUNKS, views, strict=True):
        expected = reference_scores(method, attention_maps(model, chunk), len(chunk))
        torch.testing.assert_close(METHODS[method].score(view), torch.tensor(expected), atol=1e-4, rtol=1e-3)


def kept(method: str, view, keep: float) -> list[int]:
    return kept_tokens(Compression(CompressionMethod(method), keep), view)


def test_a_share_of_each_chunk_stays_in_its_order(views, subtests):
    for method in COMPRESSING:
        for keep in [0.01, 0.3, 0.5, 0.99]:
            with subtests.test(method=method, keep=keep):
                for chunk, view in zip(CHUNKS, views, strict=True):
                    offsets = kept(method, view, keep)
                    assert offsets == sorted(set(offsets))
                    assert set(offsets) <= set(range(len(chunk)))
                    assert len(offsets) == max(1, round(keep * len(chunk)))


def test_streaming_keeps_the_first_and_the_last(views):
    assert kept("streaming", views[0], 0.5) == [*range(SINKS), *range(51 - 26 + SINKS, 51)]


def test_half_of_what_h2o_keeps_is_recent_and_the_rest_has_most_attention(views):
    scores = METHODS[CompressionMethod.H2O].score(views[0])[: 51 - 13]
    heavy = sorted(scores.sort(descending=True).indices[:13].tolist())
    assert kept("h2o", views[0], 0.5) == [*heavy, *range(51 - 13, 51)]


def test_snapkv_keeps_its_window_but_never_more_than_half_of_the_budget(views):
    assert kept("snapkv", views[0], 0.9)[-WINDOW:] == list(range(51 - WINDOW, 51))
    assert kept("snapkv", views[0], 0.2)[-5:] == list(range(46, 51))
    assert len(kept("snapkv", views[0], 0.2)) == 10


def test_a_chunk_is_seen_alike_alone_and_beside_longer_ones(model, views):
    """Neither padding nor another chunk is attended to."""
    [alone] = Watcher(copy.deepcopy(model), PREFIX, CUE, DECODED).views(CHUNKS[1:2])
    for kind in ("queries", "keys"):
        for one, other in zip(getattr(alone, kind), getattr(views[1], kind), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_rows_are_a_chunk_of_their_own(model):
    """Their keys and values are those of the whole; the Q-Cache's blocks are of what is left."""
    layout = layout_of(model.config, "float32")
    [_, whole] = Prefiller(copy.deepcopy(model).model, layout).prefill(PREFIX, CHUNKS[:1])
    offsets = list(range(1, 51, 2))

    rows = rows_of(whole, offsets, layout)

    assert rows.num_tokens == len(offsets)
    torch.testing.assert_close(rows.keys, whole.keys[:, offsets])
    torch.testing.assert_close(rows.values, whole.values[:, offsets])
    first = whole.keys[layout.q_layers.start : layout.q_layers.stop, offsets[:QCACHE_BLOCK]]
    torch.testing.assert_close(rows.mean_keys[0], first.mean(1))
    assert len(rows.mean_keys) == 2


@pytest.mark.parametrize("method", COMPRESSING)
def test_ingestion_keeps_kv_of_what_stays_alone(model, tmp_path, method):
    """The file holds the tokens that the model's own view chooses, and where in the chunk they are."""
    layout = layout_of(model.config, "float32")
    compression = Compression(method, 0.5)
    keys = KeyMaker(b"s", "m", "float32", tuple(PREFIX), compression=compression)
    chunks = [Chunk(str(i), "d", i, "", "", 0, 0, None, tuple(ids)) for i, ids in enumerate(CHUNKS)]
    loaded = []

    def load():
        loaded.append(1)
        return Watcher(copy.deepcopy(model), PREFIX, CUE, DECODED)

    compressor, store = Compressor(layout, load), KVStore(tmp_path)
    prefiller = Prefiller(copy.deepcopy(model).model, layout)
    precompute(chunks, keys, lambda: prefiller, store, lambda: 4096, compressor=compressor)

    _, *wholes = prefiller.prefill(PREFIX, CHUNKS)
    for chunk, whole, view in zip(chunks, wholes, compressor.views(CHUNKS, [method]), strict=True):
        kv = store.get(keys.chunk(chunk.token_ids), layout)
        offsets = kept_tokens(compression, view)
        assert store.kept(keys.chunk(chunk.token_ids)) == tuple(offsets)
        torch.testing.assert_close(kv.keys, whole.keys[:, offsets], atol=1e-5, rtol=1e-4)
    assert bool(loaded) == METHODS[method].looks
