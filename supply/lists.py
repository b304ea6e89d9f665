"""Locked lists, as uv writes them: exact versions, hashes of the files, and which package required each."""

import re
from dataclasses import dataclass
from pathlib import Path

_PIN = re.compile(r"^([a-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^    #(?: via)?\s+([A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A package in one version. `hashes`: SHA-256 of every file that may be installed; `via`: packages that need it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]


def read_list(path: Path) -> list[Pinned]:
    """The packages of a locked list, in its order."""
    blocks: list[list[str]] = []
    for line in path.read_text().splitlines():
        if _PIN.match(line):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
    return [_pinned(block) for block in blocks]


def _pinned(lines: list[str]) -> Pinned:
    pin = _PIN.match(lines[0])
    assert pin is not None, "a block begins with a pin"
    via = [match[1] for line in lines if (match := _VIA.match(line)) and match[1] not in ("via", "-c")]
    return Pinned(pin[1], pin[2], tuple(_HASH.findall("\n".join(lines))), tuple(via))
