"""Long lists a page at a time. A cursor says where the next page begins; nobody but this module reads it."""

import base64
import binascii
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ragkv.errors import Rejected

MAX_PAGE = 200

Moment = Annotated[datetime, Meta(tz=True)]
Id = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Ordinal = Annotated[int, Meta(ge=0, lt=2**31)]
Name = Annotated[str, Meta(max_length=200)]

P = TypeVar("P")


def to_cursor(position: object) -> str:
    """What stands last on a page."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def from_cursor(cursor: str, kind: type[P]) -> P:
    """The position a cursor was made from. Raises Rejected for any other text."""
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Rejected("invalid cursor: use `next` of the previous page, or omit it for the first page") from None
