"""The plan: a value, whole or not at all."""

import pytest

from ragkv.choosing import Choice
from ragkv.span import Span, merge, tokens_within, total_tokens
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan, plan_stitch

PLACED = (PlacedChunk("p", Span(0, 10)), PlacedChunk("a", Span(10, 30)), PlacedChunk("b", Span(30, 50)))


def test_merging_joins_what_touches_and_drops_what_is_empty():
    merged = merge([Span(5, 9), Span(0, 3), Span(3, 4), Span(7, 12), Span(20, 20)])
    assert merged == (Span(0, 4), Span(5, 12))
    assert total_tokens(merged) == 11


def test_tokens_within_a_region_are_those_of_all_spans_cut_to_it():
    spans = [Span(start, start + 3) for start in range(0, 60, 5)]
    for start in range(64):
        for end in range(start, 64):
            region = Span(start, end)
            assert tokens_within(spans, region) == total_tokens(span.clipped_to(region) for span in spans)


def test_a_missing_chunk_is_recomputed_whole():
    plan = plan_stitch(PLACED, frozenset({"b"}), [Span(12, 14)])
    assert plan.recompute == (Span(12, 14), Span(30, 50))
    assert plan.num_missing == 1


def test_the_prefix_is_no_chunk_without_kv():
    plan = plan_stitch(PLACED, frozenset({"p", "b"}), [])

    assert plan.recompute == (Span(0, 10), Span(30, 50))
    assert plan.num_missing == 2
    assert (plan.num_without_kv(()), plan.num_without_kv(["a"])) == (1, 2)
    assert plan_stitch(PLACED, frozenset(), []).num_without_kv(["p", "b"]) == 1


def test_a_piece_without_a_key_is_recomputed_whole():
    plan = plan_stitch([PlacedChunk("p", Span(0, 10)), PlacedChunk(None, Span(10, 12))], frozenset(), [])
    assert plan.recompute == (Span(10, 12),)


def test_pieces_must_tile_the_prompt():
    with pytest.raises(AssertionError):
        StitchPlan((PlacedChunk("p", Span(0, 10)), PlacedChunk("a", Span(11, 30))))


def test_recompute_stays_inside_what_is_placed():
    with pytest.raises(AssertionError):
        StitchPlan(PLACED, (Span(40, 60),))


def test_plans_that_recompute_differently_never_share_a_cache_variant():
    """The variant becomes the cache salt: approximate KV of one kind never meets another's."""
    plans = [
        StitchPlan(PLACED),
        StitchPlan(PLACED, (Span(10, 12),)),
        StitchPlan(PLACED, (Span(10, 13),)),
        StitchPlan(PLACED, (), EngineSelection("deviation", 0.1, 16)),
        StitchPlan(PLACED, (), EngineSelection("deviation", 0.2, 16)),
        StitchPlan(PLACED, (), EngineSelection("question", 0.1, 16)),
        StitchPlan(PLACED, (), EngineSelection("question", 0.1, 16, choice=Choice((9,)))),
        StitchPlan(PLACED, (), EngineSelection("question", 0.1, 16, choice=Choice((9,), sink_aware=False))),
    ]
    assert len({plan.cache_variant for plan in plans}) == len(plans)


def test_kv_with_tokens_left_out_is_known_by_its_file():
    """The tokens left out have been attended to, and are not in the prompt whose ids vLLM compares."""
    plans = [
        StitchPlan((PlacedChunk("p", Span(0, 10)), PlacedChunk(key, Span(10, 30), kept)))
        for key in ("of 5 million", "of 7 million")
        for kept in ("", "half", "third")
    ]
    assert len({plan.cache_variant for plan in plans}) == 1 + 2 * 2


def test_the_same_plan_has_the_same_cache_variant():
    assert StitchPlan(PLACED, (Span(1, 2),)).cache_variant == StitchPlan(PLACED, (Span(1, 2),)).cache_variant
