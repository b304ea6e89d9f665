"""Metadata filters with comparisons and combinations: which documents a search may see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Literal

from ragkv.ids import batched
from ragkv.service.base.database import Database
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.metadata import Metadata, conditions, labels_of
from ragkv.service.documents.statements import among, documents_where, ids_of

Value = str | int | float | bool
Comparator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]

_ORDER: Mapping[str, Callable[[Value, Value], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on a document's value under a key; of a list, on one element.

    eq and in hold for an equal value, ne and nin where neither holds, also where there is no value. The others order
    numbers among numbers and texts among texts.
    """

    key: str
    comparator: Comparator
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Compound:
    """All of its parts, or one of them."""

    combine: Literal["and", "or"]
    parts: "tuple[AttributeFilter, ...]"


AttributeFilter = Comparison | Compound


class _Facts:
    """One document's metadata. The labels under a key are made once, however many comparisons look at them."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self._labels: dict[str, frozenset[str]] = {}

    def labels(self, key: str) -> frozenset[str]:
        if key not in self._labels:
            held = {key: self.metadata[key]} if key in self.metadata else {}
            self._labels[key] = frozenset(label for _, label in labels_of(held))
        return self._labels[key]

    def values(self, key: str) -> list[object]:
        """The value under a key, or the elements of a list."""
        value = self.metadata.get(key)
        return value if isinstance(value, list) else [value]


_Test = Callable[[_Facts], bool]


def documents_that_match(ref: CollectionRef, criteria: AttributeFilter, database: Database) -> frozenset[str]:
    """The ids of a collection's matching documents. The database tests what must be equal, this process the rest."""
    labels = conditions({key: list(values) for key, values in _must_equal(criteria)})
    narrowed = documents_where(ref.tenant_id, ref.collection_id, labels=labels)
    matches = predicate_of(criteria)
    matching: set[str] = set()
    with database.reading() as session:
        for batch in batched(session.scalars(ids_of(narrowed)).all()):  # all metadata at once would fill the memory
            rows = session.execute(among(narrowed, batch).with_only_columns(DocumentRow.id, DocumentRow.labels))
            matching |= {document_id for document_id, metadata in rows if matches(metadata)}
    return frozenset(matching)


def predicate_of(criteria: AttributeFilter) -> Callable[[Metadata], bool]:
    """The filter made ready once for any number of documents' metadata."""
    test = _test_of(criteria)
    return lambda metadata: test(_Facts(metadata))


def _test_of(criteria: AttributeFilter) -> _Test:
    if isinstance(criteria, Compound):
        combine = all if criteria.combine == "and" else any
        tests = [_test_of(part) for part in criteria.parts]
        return lambda facts: combine(test(facts) for test in tests)
    if criteria.comparator in _ORDER:
        return lambda facts: any(_ordered(criteria, value) for value in facts.values(criteria.key))
    # Equal as `ragkv.service.documents.metadata` writes values: 1 and 1.0 are one value, 1 and true are two.
    values = frozenset(conditions({criteria.key: list(criteria.values)})[0][1])
    expected = criteria.comparator in ("eq", "in")
    return lambda facts: values.isdisjoint(facts.labels(criteria.key)) != expected


def _ordered(comparison: Comparison, value: object) -> bool:
    limit = comparison.values[0]
    if isinstance(value, bool) or isinstance(limit, bool):
        return False
    if isinstance(value, str) and isinstance(limit, str):
        return _ORDER[comparison.comparator](value, limit)
    numbers = isinstance(value, int | float) and isinstance(limit, int | float)
    return numbers and _ORDER[comparison.comparator](value, limit)  # type: ignore[arg-type]


def _must_equal(criteria: AttributeFilter) -> list[tuple[str, tuple[Value, ...]]]:
    """Keys with the values of which every match has one; each key once."""
    if isinstance(criteria, Compound):
        parts = criteria.parts if criteria.combine == "and" else ()
        return list({key: values for part in parts for key, values in _must_equal(part)}.items())
    return [(criteria.key, criteria.values)] if criteria.comparator in ("eq", "in") else []
