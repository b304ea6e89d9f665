"""Views: what users see of a row, or of another value with fields of the same names."""

from typing import Any, TypeVar

import msgspec

View = TypeVar("View", bound=msgspec.Struct)


def view_from(kind: type[View], source: object, **fields: Any) -> View:
    """A view with these fields. All others are the source's attributes of the same names."""
    same = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in fields}
    return kind(**same, **fields)
