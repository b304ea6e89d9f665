"""Ids that the service assigns: 32 hexadecimal digits."""

import re
import uuid

_ID = re.compile(r"[0-9a-f]{32}")


def new_id() -> str:
    return uuid.uuid4().hex


def is_id(text: str) -> bool:
    """Whether a text has the form of an id."""
    return _ID.fullmatch(text) is not None
