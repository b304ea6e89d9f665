"""Licences as packages state them: from the metadata of installed packages, and from a table for those that need a GPU.

`python -m supply.stated absent LIST...` names the packages of lists that are not installed here, `... table REPORT`
makes the table from pip's report of them (`make licences-gpu`).
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from supply.lists import Pinned, read_list

TABLE = Path(__file__).with_name("licences-gpu.txt")
_HEAD = "# What the metadata of these versions state, which are not installed where licences are checked. `make licences-gpu` writes it.\n"
_SAYS_NOTHING = ("OSI Approved", "DFSG approved")


def stated(pinned: Pinned) -> str | None:
    """The licence that a package states in this version; None if it is neither installed here nor in the table."""
    installed = _installed(pinned)
    return _table().get(_name(pinned.name, pinned.version)) if installed is None else stated_in(installed)


def stated_in(metadata: Mapping[str, Any]) -> str:
    """The expression, else its classifiers, else the first of its words."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    classified = [c.rsplit(" :: ", 1)[-1] for c in metadata.get("classifier", ()) if c.startswith("License ::")]
    words = str(metadata.get("license", "")).strip().split("\n")[0]
    return " AND ".join(c for c in classified if c not in _SAYS_NOTHING) or words or "UNKNOWN"


def _installed(pinned: Pinned) -> Mapping[str, Any] | None:
    """Its metadata, if it is this version, whatever it was built for."""
    try:
        package = distribution(pinned.name)
    except PackageNotFoundError:
        return None
    same = _name(pinned.name, package.version) == _name(pinned.name, pinned.version)
    return package.metadata.json if same else None


@cache
def _table() -> Mapping[str, str]:
    lines = (line for line in TABLE.read_text().splitlines() if not line.startswith("#"))
    return dict(line.split(" ", 1) for line in lines)


def _name(name: str, version: str) -> str:
    return f"{name}=={version.split('+', maxsplit=1)[0]}"


def _absent(*paths: str) -> Iterator[str]:
    pins = (pinned for path in paths for pinned in read_list(Path(path)))
    yield from (_name(pinned.name, pinned.version) for pinned in pins if _installed(pinned) is None)


def _lines(path: str) -> Iterator[str]:
    for package in json.loads(Path(path).read_text())["install"]:
        metadata = package["metadata"]
        name = metadata["name"].lower().replace("_", "-")
        yield f"{_name(name, metadata['version'])} {stated_in(metadata)}"


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    if verb == "absent":
        sys.stdout.writelines(f"{line}\n" for line in _absent(*arguments))
    else:
        sys.stdout.writelines((_HEAD, *(f"{line}\n" for line in sorted(_lines(*arguments)))))
