"""Selections of the engine are made once a prompt."""

from ragkv.connector.selections import Selections
from ragkv.span import Span
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan

WHOLE, REST = Span(0, 90), Span(64, 90)


def plan_of_three_chunks() -> StitchPlan:
    placed = tuple(PlacedChunk(f"key {start}", Span(start, start + 30)) for start in (0, 30, 60))
    return StitchPlan(placed, (Span(30, 40),), EngineSelection("question", 0.1, 4))


def test_the_first_time_the_engine_selects():
    plan = plan_of_three_chunks()
    assert Selections(4).settled(plan, 1, WHOLE) == plan


def test_the_rest_of_a_prompt_is_recomputed_as_the_whole_was():
    selections = Selections(4)
    selections.keep(1, [Span(30, 48), Span(70, 74)])

    settled = selections.settled(plan_of_three_chunks(), 1, REST)

    assert (settled.selection, settled.recompute) == (None, (Span(30, 48), Span(70, 74)))


def test_a_prompt_whose_blocks_are_gone_needs_no_second_selection():
    selections = Selections(4)
    selections.keep(1, [Span(30, 48)])
    assert selections.settled(plan_of_three_chunks(), 1, WHOLE).recompute == (Span(30, 48),)


def test_behind_a_part_that_was_filled_after_a_failure_everything_is_recomputed():
    settled = Selections(4).settled(plan_of_three_chunks(), 1, REST)
    assert (settled.selection, settled.recompute) == (None, (Span(30, 40), REST))


def test_a_plan_that_leaves_nothing_to_the_engine_stays_as_it_is():
    plan = StitchPlan(plan_of_three_chunks().placed, (Span(30, 40),))
    assert Selections(4).settled(plan, 1, REST) == plan


def test_prompts_used_longest_ago_are_forgotten():
    selections = Selections(2)
    for prompt in (1, 2):
        selections.keep(prompt, [Span(30, 48)])
    selections.settled(plan_of_three_chunks(), 1, REST)
    selections.keep(3, [Span(30, 48)])

    remembered = [selections.settled(plan_of_three_chunks(), prompt, WHOLE).selection is None for prompt in (1, 2, 3)]

    assert remembered == [True, False, True]
