"""Read JSON Lines files that users provide."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ragkv.errors import Rejected

Line = TypeVar("Line")


def read_lines(path: Path, kind: type[Line], hint: str = "") -> Iterator[tuple[int, Line]]:
    """Lines that are not blank, with their numbers from 1.

    Raises Rejected for a file that cannot be read, ending in `hint`, and, naming file and line, for what is no `kind`.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise Rejected(f"{path}: {error.strerror}{hint}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Rejected(f"{path}, line {number}: {error}") from None
