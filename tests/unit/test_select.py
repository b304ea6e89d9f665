"""Selectors: pure, exact about the budget, and about the right blocks."""

import math
import random

import pytest
import torch

from ragkv.kv.format import QCACHE_BLOCK
from ragkv.span import Span, total_tokens
from ragkv.stitch.select import (
    SELECTORS,
    ChunkEvidence,
    Evidence,
    attention_weights,
    block_logits,
    causal_attention_weights,
    enriched_queries,
    regroup,
    take_blocks,
)  # fmt: skip

LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM = 3, 4, 2, 8
PREFIX = 11


def evidence(lengths=(40, 33, 64, 5), block_size=16):
    torch.manual_seed(1)
    chunks, start = [], PREFIX
    for rank, length in enumerate(lengths):
        blocks = math.ceil(length / QCACHE_BLOCK)
        chunks.append(
            ChunkEvidence(
                Span(start, start + length),
                score=float(rank % 3),
                local=torch.randn(LAYERS, Q_HEADS, HEAD_DIM),
                mean_keys=torch.randn(blocks, LAYERS, KV_HEADS, HEAD_DIM),
            )
        )
        start += length
    return Evidence(tuple(chunks), torch.randn(LAYERS, Q_HEADS, HEAD_DIM), block_size)


def test_every_policy_spends_its_budget_and_no_more(subtests):
    for policy in [name for name in SELECTORS if name != "none"]:
        for block_size in [2, 16, 64]:
            with subtests.test(policy=policy, block_size=block_size):
                given = evidence(block_size=block_size)
                for budget in (0, 1, 17, 90, total_tokens(chunk.span for chunk in given.chunks)):
                    spans = SELECTORS[policy](given, budget)
                    assert total_tokens(spans) == budget
                    assert all(
                        PREFIX <= span.start < span.end <= PREFIX + total_tokens(chunk.span for chunk in given.chunks)
                        for span in spans
                    )


def test_none_selects_nothing():
    assert SELECTORS["none"](evidence(), 50) == ()


def test_head_takes_the_first_tokens_of_every_chunk():
    spans = SELECTORS["head"](evidence((30, 30, 30)), 12)
    assert spans == (Span(11, 15), Span(41, 45), Span(71, 75))


def test_head_gives_what_a_short_chunk_cannot_use_to_the_others():
    spans = SELECTORS["head"](evidence((30, 2, 30)), 12)
    assert spans == (Span(11, 16), Span(41, 48))  # 5 tokens, then the 2 of the short one and 5 of its neighbour


def test_initial_finds_the_block_the_question_looks_at():
    given = evidence()
    wanted = given.chunks[2].mean_keys
    wanted[1] = 10 * given.question.view(LAYERS, KV_HEADS, -1, HEAD_DIM).mean(2)
    span = given.chunks[2].span
    assert SELECTORS["initial"](given, 16) == (Span(span.start + 16, span.start + 32),)


@pytest.mark.parametrize("policy", ["initial", "contextual"])
def test_heads_count_by_their_attention_and_not_by_the_size_of_their_logits(policy):
    """One head of three looks at the first block, with far larger logits than those of the two others at the second."""
    mean_keys = torch.tensor([[100.0, 0.0, 0.0], [0.0, 10.0, 10.0]]).view(2, 1, 3, 1)
    chunk = ChunkEvidence(Span(0, 2 * QCACHE_BLOCK), mean_keys=mean_keys)

    spans = SELECTORS[policy](Evidence((chunk,), torch.ones(1, 3, 1)), QCACHE_BLOCK)

    assert spans == (Span(QCACHE_BLOCK, 2 * QCACHE_BLOCK),)


@pytest.mark.parametrize("policy", ["initial", "contextual"])
def test_of_blocks_with_equal_attention_the_last_is_taken(policy):
    chunk = ChunkEvidence(Span(0, 3 * QCACHE_BLOCK), mean_keys=torch.zeros(3, 1, 1, 1))

    spans = SELECTORS[policy](Evidence((chunk,), torch.ones(1, 1, 1)), QCACHE_BLOCK)

    assert spans == (Span(2 * QCACHE_BLOCK, 3 * QCACHE_BLOCK),)


def test_block_logits_are_scaled_dot_products_with_each_querys_own_kv_head():
    query, keys = torch.randn(LAYERS, Q_HEADS, HEAD_DIM), torch.randn(5, LAYERS, KV_HEADS, HEAD_DIM)
    logits = block_logits(query, keys)
    layer, head, block = 2, 3, 4
    expected = query[layer, head] @ keys[block, layer, head // (Q_HEADS // KV_HEADS)] / math.sqrt(HEAD_DIM)
    torch.testing.assert_close(logits[layer, head, block], expected)


def test_enriched_queries_follow_samkvs_formula():
    """q_i = q + 1/(D-1) * sum over j != i of |cos(q, local_j)| * local_j, head by head."""
    given = evidence()
    enriched = enriched_queries(given.question, given.chunks)
    others = [given.chunks[j].local for j in (0, 2, 3)]
    cosines = [torch.nn.functional.cosine_similarity(given.question, local, dim=-1).abs() for local in others]
    added = sum(c.unsqueeze(-1) * local for c, local in zip(cosines, others, strict=True)) / 3
    torch.testing.assert_close(enriched[1], given.question + added)


def test_a_chunk_without_a_q_cache_is_left_to_be_recomputed_whole():
    given = evidence()
    blind = Evidence((ChunkEvidence(given.chunks[0].span), *given.chunks[1:]), given.question, 16)
    for policy in ("initial", "contextual"):
        spans = SELECTORS[policy](blind, 30)
        assert all(span.start >= given.chunks[1].span.start for span in spans)


def test_regrouping_mean_keys_weighs_every_token_once():
    tokens = torch.randn(40, 1, 1, 4)
    stored = torch.stack([block.mean(0) for block in tokens.split(QCACHE_BLOCK)])
    [first, second] = regroup(stored, 40, 32)
    torch.testing.assert_close(first, tokens[:32].mean(0))
    torch.testing.assert_close(second, tokens[32:].mean(0))


def test_blocks_are_taken_by_their_mean_score():
    draw = random.Random(2)
    spans = (Span(10, 30), Span(30, 45))
    scores = torch.tensor([draw.random() for _ in range(35)])
    scores[20:28] += 5  # the first block of the second span
    assert take_blocks(spans, scores, 8, 8) == (Span(30, 38),)


def test_of_blocks_with_equal_scores_the_last_are_taken():
    assert take_blocks((Span(10, 30), Span(30, 45)), torch.ones(35), 8, 15) == (Span(30, 45),)


@pytest.mark.parametrize("max_logits", [2**24, 3 * 4 * 9, 1])
def test_a_query_attends_to_the_keys_before_its_own_and_to_that_one(monkeypatch, max_logits):
    """However many queries are taken at once."""
    monkeypatch.setattr("ragkv.stitch.select.MAX_LOGITS", max_logits)
    queries, keys = torch.randn(5, 4, 8), torch.randn(9, 2, 8)

    weights = causal_attention_weights(queries, keys)

    for index in range(5):
        seen = 9 - 5 + index + 1
        alone = attention_weights(queries[index, None], keys[:seen])
        torch.testing.assert_close(weights[index], torch.cat([alone, torch.zeros(9 - seen)]))
