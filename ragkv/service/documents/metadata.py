"""Metadata of documents, a JSON object that their owner sets, and filters over it.

Filters find the values at the top of the object that are text, numbers, true, false or null, and the elements of
lists there. All else is kept and shown.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ragkv.errors import Rejected

Metadata = dict[str, Any]
Scalar = str | int | float | bool | None
MetadataFilter = Mapping[str, Scalar | list[Scalar]]
"""What a document must have: for every key the value, or one of the values of a list."""

MAX_BYTES = 16 * 1024
MAX_KEYS = 64
MAX_KEY_CHARS = 100
MAX_DEPTH = 32
"""Lists and objects in each other, the outermost included."""
MAX_FILTER_VALUES = 1000
"""In all lists of a filter together."""
MAX_LABEL_CHARS = 200
"""A value whose JSON is longer is found by its digest."""


def read_metadata(text: str) -> Metadata:
    """Metadata from JSON. Raises Rejected for anything but an object within the limits."""
    try:
        return checked(msgspec.json.decode(text.encode(), type=Metadata))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise Rejected('metadata must be a JSON object, like {"year": 2024, "tags": ["draft"]}') from None


def read_filter(text: str) -> MetadataFilter:
    """A filter from JSON. Raises Rejected for anything else."""
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, Scalar | list[Scalar]])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise Rejected(
            'a metadata filter must be a JSON object of values, like {"lang": "en", "year": [2023, 2024]}'
        ) from None


def checked(metadata: Metadata) -> Metadata:
    """The metadata itself, within the limits.

    Raises Rejected if it is too large or too deep, or if a key is not 1 to MAX_KEY_CHARS printable characters.
    """
    if not _is_within(metadata, MAX_DEPTH):
        raise Rejected(f"metadata can be nested at most {MAX_DEPTH} levels deep")
    if len(metadata) > MAX_KEYS or len(msgspec.json.encode(metadata)) > MAX_BYTES:
        raise Rejected(f"metadata can have at most {MAX_KEYS} keys and {MAX_BYTES:,} bytes")
    if not all(0 < len(key) <= MAX_KEY_CHARS and key.isprintable() for key in metadata):
        raise Rejected(f"metadata keys must have 1 to {MAX_KEY_CHARS} printable characters")
    return metadata


def patched(metadata: Metadata, patch: Metadata) -> Metadata:
    """The metadata with the patch applied (RFC 7396): null removes a key, objects are merged, the rest replaces."""
    merged = dict(metadata)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            old = merged.get(key)
            merged[key] = patched(old if isinstance(old, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def is_same(value: Any, other: Any) -> bool:
    """Whether two values are one as JSON: to Python 1 and true are, too."""
    return msgspec.json.encode(value, order="sorted") == msgspec.json.encode(other, order="sorted")


def labels_of(metadata: Metadata) -> set[tuple[str, str]]:
    """(key, value) for all that filters find, each value in the one form that equal values share."""
    return {(key, label) for key, value in metadata.items() for label in _labels(value)}


def conditions(criteria: MetadataFilter) -> list[tuple[str, list[str]]]:
    """Each key with the values of which a document must have one, as `labels_of` writes them.

    Raises Rejected for more than MAX_KEYS keys or MAX_FILTER_VALUES values.
    """
    values = sum(len(value) if isinstance(value, list) else 1 for value in criteria.values())
    if len(criteria) > MAX_KEYS or values > MAX_FILTER_VALUES:
        raise Rejected(f"a metadata filter can have at most {MAX_KEYS} keys and {MAX_FILTER_VALUES:,} values in all")
    return [(key, list(_labels(value))) for key, value in criteria.items()]


def _is_within(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested no deeper than the limit."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_within(member, depth - 1) for member in inner)


def _labels(value: Any) -> Iterator[str]:
    """Each scalar of a value as JSON, or as a digest of that, which begins as no JSON does."""
    for member in value if isinstance(value, list) else [value]:
        if isinstance(member, Scalar):
            scalar = int(member) if isinstance(member, float) and member.is_integer() else member
            encoded = msgspec.json.encode(scalar)
            label = encoded.decode()
            yield label if len(label) <= MAX_LABEL_CHARS else f"#{hashlib.sha256(encoded).hexdigest()}"
