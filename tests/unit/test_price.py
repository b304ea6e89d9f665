"""What full prefill costs, fitted to prompts that were computed."""

import pytest

from ragkv.statistics.price import Price, Run, fit

TRUE = Price(per_prompt=20.0, per_token=0.3, per_pair=0.0001)


def runs(price: Price, *prompts: tuple[int, int]) -> list[Run]:
    return [Run(computed, cached, price.of(computed, cached)) for computed, cached in prompts]


def test_without_a_run_nothing_is_known():
    assert fit([]) is None
    assert fit([Run(0, 100, 5.0)]) is None


def test_one_run_says_what_a_token_costs():
    price = fit([Run(1000, 0, 500.0)])

    assert price.of(2000) == pytest.approx(1000)


def test_prompts_of_about_one_length_say_no_more_than_one_does():
    """However the noise falls."""
    price = fit([Run(1000, 0, 500.0), Run(1100, 0, 400.0), Run(1050, 0, 600.0)])

    assert (price.per_prompt, price.per_pair) == (0, 0)


def test_prices_are_found_again():
    price = fit(runs(TRUE, (200, 0), (1000, 0), (4000, 0), (500, 3000), (2000, 2000)))

    assert price.terms == pytest.approx(TRUE.terms, rel=1e-6)


def test_no_price_is_below_zero():
    """Times that grow more slowly than the prompts, as those of a machine that was busy with the short ones."""
    price = fit([Run(1000, 0, 1000.0), Run(2000, 0, 1100.0), Run(8000, 0, 1200.0)])

    assert min(price.terms) >= 0
    assert price.of(4000) > price.of(2000)


def test_one_that_waited_for_long_changes_little():
    calm = runs(TRUE, (500, 0), (1000, 0), (2000, 0), (3000, 0), (4000, 0))
    price = fit([*calm, Run(2000, 0, 50 * TRUE.of(2000))])

    assert price.of(3000) == pytest.approx(TRUE.of(3000), rel=0.25)


def test_what_was_cached_costs_only_attention():
    assert TRUE.of(100) < TRUE.of(100, cached=4000) < TRUE.of(4100)
