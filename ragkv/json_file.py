"""Values in JSON files: written atomically; if a file cannot be read, the error says why."""

from pathlib import Path
from typing import TypeVar

import msgspec

from ragkv.disk import replace_file
from ragkv.errors import Rejected

T = TypeVar("T")


def read_json(path: Path, kind: type[T], hint: str = "") -> T | None:
    """The value in a file, None if there is no file. Raises Rejected for one that cannot be read. `hint`: what to do
    then."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Rejected("; ".join(filter(None, (f"{path}: {error}", hint)))) from None


def write_json(path: Path, value: object) -> None:
    """Put a value into a file, indented for people."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(value)))
