"""Names that users give to tenants, collections, keys and files."""

from ragkv.errors import Rejected
from ragkv.ids import is_id
from ragkv.normal_form import normalised

MAX_NAME_CHARS = 200
MAX_FILE_NAME_CHARS = 500


def one_spelling(name: str) -> str:
    """The name as it is stored and found: in NFC, without space around it."""
    return normalised("NFC", name).strip()


def clean_name(name: str) -> str:
    """The name in one spelling.

    Raises Rejected unless it has 1 to MAX_NAME_CHARS printable characters. One that reads like an id would be taken for
    that id, so it is refused too.
    """
    cleaned = one_spelling(name)
    if not 0 < len(cleaned) <= MAX_NAME_CHARS or not cleaned.isprintable():
        raise Rejected(f"a name must have 1 to {MAX_NAME_CHARS} printable characters")
    if is_id(cleaned):
        raise Rejected("a name must not look like an id: 32 hexadecimal digits")
    return cleaned


def clean_file_name(name: str) -> str:
    """A file name fit to show: its last part, printable and of bounded length."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:MAX_FILE_NAME_CHARS] or "unnamed"


def storable(text: str) -> str:
    """The text without the one character that PostgreSQL refuses. It is part of no name, so nothing is found by it."""
    return text.replace("\x00", "\ufffd")
