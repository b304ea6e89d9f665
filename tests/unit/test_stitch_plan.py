"""The plan: a value, whole or not at all."""

import pytest

from ragkv.span import Span, merge, split, tokens_within, total_tokens
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan, plan_stitch
from ragkv.stitch.policies import Choice
from tests.support.hash_seeds import results_by_seed

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


@pytest.mark.parametrize(
    ("max_tokens", "max_spans", "part", "rest"),
    [
        (100, 9, [(0, 4), (6, 9), (20, 30)], []),
        (17, 3, [(0, 4), (6, 9), (20, 30)], []),
        (16, 3, [(0, 4), (6, 9), (20, 29)], [(29, 30)]),
        (7, 3, [(0, 4), (6, 9)], [(20, 30)]),
        (100, 2, [(0, 4), (6, 9)], [(20, 30)]),
        (2, 1, [(0, 2)], [(2, 4), (6, 9), (20, 30)]),
    ],
)
def test_splitting_takes_as_many_tokens_and_spans_as_are_allowed(max_tokens, max_spans, part, rest):
    spans = [Span(0, 4), Span(6, 9), Span(20, 30)]
    expected = tuple([Span(*bounds) for bounds in side] for side in (part, rest))
    assert split(spans, max_tokens, max_spans) == expected


@pytest.mark.parametrize(
    ("span", "blocks"), [(Span(0, 16), [0]), (Span(0, 17), [0, 1]), (Span(15, 33), [0, 1, 2]), (Span(32, 48), [2])]
)
def test_a_block_that_a_span_fills_in_part_is_one_of_its_blocks(span, blocks):
    assert list(range(4))[span.blocks(16)] == blocks


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
    with pytest.raises(ValueError, match="gap"):
        StitchPlan((PlacedChunk("p", Span(0, 10)), PlacedChunk("a", Span(11, 30))))


def test_recompute_stays_inside_what_is_placed():
    with pytest.raises(ValueError, match="beyond"):
        StitchPlan(PLACED, (Span(40, 60),))


def test_plans_that_recompute_differently_never_share_a_cache_variant():
    """The variant becomes the cache salt: approximate KV of one kind never meets another's, nor exact KV."""
    plans = [
        StitchPlan(PLACED),
        StitchPlan(PLACED, (Span(10, 12),)),
        StitchPlan(PLACED, (Span(10, 13),)),
        StitchPlan(PLACED, writer="w"),
        StitchPlan(PLACED, quantised="int4"),
        StitchPlan(PLACED, quantised="int8"),
        StitchPlan(PLACED, narrow=True),
        StitchPlan(PLACED[:-1], narrow=True),
        StitchPlan(PLACED, (), EngineSelection("deviation", 0.1, 16)),
        StitchPlan(PLACED, (), EngineSelection("deviation", 0.2, 16)),
        StitchPlan(PLACED, (), EngineSelection("question", 0.1, 16)),
        StitchPlan(PLACED, (), EngineSelection("question", 0.1, 16, choice=Choice((9,)))),
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


def test_where_nothing_selects_layers_with_a_window_get_what_is_seen_alone():
    selection = EngineSelection("question", 0.1, 16)
    assert [plan_stitch(PLACED, frozenset(), (), chosen, has_window=True).narrow for chosen in (None, selection)] == [
        True, False,
    ]  # fmt: skip
    assert not plan_stitch(PLACED, frozenset(), ()).narrow


def variant_of_all_that_it_names() -> str:
    placed = (*PLACED, PlacedChunk("c", Span(50, 60), "kept"))
    selection = EngineSelection("question", 0.1, 16, "topic", Choice((7, 8, 9)))
    return StitchPlan(
        placed, (Span(1, 2),), selection, frozenset({Span(10, 30)}), "writer", "int4", "model"
    ).cache_variant


def test_the_same_plan_has_the_same_cache_variant_in_every_process():
    """Several hosts ask one engine."""
    assert len(results_by_seed("tests.unit.test_stitch_plan", "variant_of_all_that_it_names()")) == 1
