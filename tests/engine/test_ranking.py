"""Passages ranked by the attention of a question to their stored keys (RAGKV_RERANKER=qcache)."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from ingest.calibrate.reading import NoWriter, SelectiveReader
from ragkv.answer.question_vectors import behind_prefix
from ragkv.answer.search import QCacheRanker
from ragkv.chunk import Chunk
from ragkv.connector.connector import _added
from ragkv.engine.protocol import Ranking
from ragkv.engine.wire import WireReport
from ragkv.threads import Threads
from tests.engine.world import World, passages

ASKED = "Who directed the film, and where were they born?"
HEADS = ((0, 0), (7, 3), (12, 8), (29, 4))
NO_FILE = "0" * 64


@pytest.fixture
def chunks(exact: World) -> list[Chunk]:
    return exact.model.chunks[5:11]


def shares(world: World, keys: list[str], heads: tuple[tuple[int, int], ...] = HEADS) -> tuple[float | None, ...]:
    prompts = world.model.prompts
    question_ids, text = prompts.question_ids(ASKED), prompts.text_in(ASKED)
    asked = behind_prefix(prompts.prefix_ids, question_ids, text, world.model.keys, Ranking(tuple(keys), heads))
    found = world.loop.run(world.answer(asked)).report.shares
    assert found is not None
    return found


def test_the_engine_sees_what_plain_transformers_see(exact: World, chunks: list[Chunk]) -> None:
    model = AutoModelForCausalLM.from_pretrained(exact.model.settings.model, dtype=torch.float32).eval()
    prompts = exact.model.prompts
    reader = SelectiveReader(model, NoWriter(), prompts.prefix_ids)
    keys = reader.keys([c.token_ids for c in chunks])
    layers = range(model.config.num_hidden_layers)
    expected = reader.shares(prompts.question_ids(ASKED), prompts.text_in(ASKED), keys, layers)

    found = shares(exact, [exact.model.keys.chunk(c.token_ids) for c in chunks])

    summed = sum(expected[layer, head] for layer, head in HEADS)
    torch.testing.assert_close(torch.tensor(found), summed, atol=2e-3, rtol=2e-2)


def test_a_chunk_without_kv_has_no_share_and_costs_the_others_none(exact: World, chunks: list[Chunk]) -> None:
    keys = [exact.model.keys.chunk(c.token_ids) for c in chunks]

    alone, with_one_missing = shares(exact, keys[:2]), shares(exact, [keys[0], NO_FILE, keys[1]])

    assert with_one_missing == (alone[0], None, alone[1])


def test_heads_that_the_model_lacks_count_for_nothing(exact: World, chunks: list[Chunk]) -> None:
    keys = [exact.model.keys.chunk(c.token_ids) for c in chunks]

    assert shares(exact, keys, (*HEADS, (999, 0), (3, 999))) == shares(exact, keys)


def test_a_question_too_long_for_the_engine_leaves_the_order_as_it_was(exact: World, chunks: list[Chunk]) -> None:
    model = exact.model
    ranker = QCacheRanker(exact.engine, model.prompts, model.planner, HEADS, Threads("test", 1))
    found = passages(chunks)

    assert exact.loop.run(ranker.reordered("and what? " * 10_000, found, model.keys)) == found


def test_passages_are_reordered_and_none_is_lost(exact: World, chunks: list[Chunk]) -> None:
    model = exact.model
    ranker = QCacheRanker(exact.engine, model.prompts, model.planner, HEADS, Threads("test", 1))
    found = passages(chunks)

    ordered = exact.loop.run(ranker.reordered(ASKED, found, model.keys))

    assert {p.chunk.id for p in ordered} == {p.chunk.id for p in found}
    assert [p.score for p in ordered] == sorted((p.score for p in ordered), reverse=True)


def test_what_was_captured_before_a_preemption_stays() -> None:
    """The question's beginning is in vLLM's cache by then: only its end runs again."""
    whole = WireReport(fills=1, kv_load_ms=1.0, queries="whole", queries_shape=(1, 1, 1), shares=[0.5])
    end = WireReport(fills=1, kv_load_ms=1.0, queries="end", queries_shape=(1, 1, 1), shares=[0.0])

    added = _added(whole, end)

    assert (added.fills, added.queries, added.shares) == (2, "whole", [0.5])
