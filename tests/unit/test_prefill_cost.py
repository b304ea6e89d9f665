"""What full prefill costs, fitted to prompts that were computed."""

import pytest

from ragkv.service.statistics.prefill_cost import CostModel, PrefillRun, fit

TRUE = CostModel(per_prompt=20.0, per_token=0.3, per_pair=0.0001)


def runs(cost: CostModel, *prompts: tuple[int, int]) -> list[PrefillRun]:
    return [PrefillRun(computed, cached, cost.of(computed, cached)) for computed, cached in prompts]


def test_without_a_run_nothing_is_known():
    assert fit([]) is None
    assert fit([PrefillRun(0, 100, 5.0)]) is None


def test_one_run_says_what_a_token_costs():
    cost = fit([PrefillRun(1000, 0, 500.0)])

    assert cost.of(2000) == pytest.approx(1000)


def test_prompts_of_about_one_length_say_no_more_than_one_does():
    """However the noise falls."""
    cost = fit([PrefillRun(1000, 0, 500.0), PrefillRun(1100, 0, 400.0), PrefillRun(1050, 0, 600.0)])

    assert (cost.per_prompt, cost.per_pair) == (0, 0)


def test_coefficients_are_found_again():
    cost = fit(runs(TRUE, (200, 0), (1000, 0), (4000, 0), (500, 3000), (2000, 2000)))

    assert cost.terms == pytest.approx(TRUE.terms, rel=1e-6)


def test_no_coefficient_is_below_zero():
    """Times that grow more slowly than the prompts, as those of a machine that was busy with the short ones."""
    cost = fit([PrefillRun(1000, 0, 1000.0), PrefillRun(2000, 0, 1100.0), PrefillRun(8000, 0, 1200.0)])

    assert min(cost.terms) >= 0
    assert cost.of(4000) > cost.of(2000)


def test_one_that_waited_for_long_changes_little():
    calm = runs(TRUE, (500, 0), (1000, 0), (2000, 0), (3000, 0), (4000, 0))
    cost = fit([*calm, PrefillRun(2000, 0, 50 * TRUE.of(2000))])

    assert cost.of(3000) == pytest.approx(TRUE.of(3000), rel=0.25)


def test_what_was_cached_costs_only_attention():
    assert TRUE.of(100) < TRUE.of(100, cached=4000) < TRUE.of(4100)
