"""Files of the measuring commands: JSON reports that they write, and JSON Lines that they read."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from ragkv.errors import Rejected


class _Output(click.Path):
    """A file's path. Raises Rejected if there is no folder for it: measuring takes minutes, and that is better known
    before."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        file: Any = super().convert(value, param, ctx)
        if not file.parent.is_dir():
            raise Rejected(f"{param.opts[0] if param else ''} {file}: there is no folder {file.parent}")
        return file


INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that a command reads."""
OUTPUT = _Output(dir_okay=False, writable=True, path_type=Path)
"""A file that a command writes, in a folder that is there."""


def json_option(help: str) -> Callable[[Any], Any]:  # noqa: A002 - click's name
    """The option --json, the argument `json_file`: a report's path, or None."""
    return click.option("--json", "json_file", type=OUTPUT, help=help)


def write_report(report: msgspec.Struct | Mapping[str, Any], file: Path | None) -> None:
    """Write a report, if a file for it was named."""
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


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
