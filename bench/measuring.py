"""JSON reports of the measuring commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ragkv.errors import Rejected


def check_folder(option: str, file: Path | None) -> None:
    """Check the folder of an output file. Raises Rejected if there is no folder for the file: measuring takes minutes,
    and that is better known before."""
    if file is not None and not file.parent.is_dir():
        raise Rejected(f"{option} {file}: there is no folder {file.parent}")


def write_report(report: msgspec.Struct | Mapping[str, Any], file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
