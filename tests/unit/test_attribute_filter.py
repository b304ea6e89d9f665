"""Filters that compare and combine, on metadata alone."""

from typing import Any

import pytest

from ragkv.service.documents.attribute_filter import Comparison, Compound, predicate_of

FACTS = {"year": 2024, "title": "Annual report", "draft": False, "tags": ["a", "b"], "size": 1.5}


def compare(comparator: Any, key: str, *values: Any) -> Comparison:
    return Comparison(key, comparator, values)


def test_a_comparison_holds_for_values_of_its_kind(subtests: pytest.Subtests):
    for comparator, key, values, expected in [
        ("eq", "year", (2024,), True),
        ("eq", "year", (2024.0,), True),
        ("eq", "year", ("2024",), False),
        ("eq", "draft", (False,), True),
        ("eq", "draft", (0,), False),
        ("eq", "tags", ("b",), True),
        ("eq", "missing", (1,), False),
        ("ne", "year", (2024,), False),
        ("ne", "missing", (1,), True),
        ("in", "year", (2023, 2024), True),
        ("nin", "tags", ("c", "b"), False),
        ("nin", "missing", ("c",), True),
        ("gt", "year", (2023,), True),
        ("gt", "year", (2024,), False),
        ("gte", "year", (2024,), True),
        ("lt", "size", (2,), True),
        ("lte", "title", ("B",), True),
        ("lt", "title", (3,), False),
        ("gt", "draft", (-1,), False),
        ("gt", "missing", (0,), False),
    ]:
        with subtests.test(comparator=comparator, key=key, values=values):
            assert predicate_of(compare(comparator, key, *values))(FACTS) is expected


@pytest.mark.parametrize("value", ["u" * 198, "u" * 199, "u" * 512, '"' * 150, "ü" * 300, 1e300])
def test_a_value_of_any_length_equals_itself_and_no_other(value: str | float):
    for held in ({"key": value}, {"key": ["a", value]}):
        assert [predicate_of(compare(c, "key", value))(held) for c in ("eq", "in", "ne", "nin")] == [
            True,
            True,
            False,
            False,
        ]
    other = value + "v" if isinstance(value, str) else value * 2
    assert [predicate_of(compare(c, "key", other))({"key": value}) for c in ("eq", "ne")] == [False, True]


def test_combinations_may_be_nested():
    recent, report = compare("gte", "year", 2020), compare("eq", "title", "Annual report")
    other = compare("eq", "title", "Minutes")

    assert predicate_of(Compound("and", (recent, report)))(FACTS)
    assert not predicate_of(Compound("and", (recent, other)))(FACTS)
    assert predicate_of(Compound("and", (recent, Compound("or", (other, report)))))(FACTS)
    assert not predicate_of(Compound("or", (other, compare("lt", "year", 2020))))(FACTS)
