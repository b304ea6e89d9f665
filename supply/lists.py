"""Third parties' work: locked lists of packages, as uv writes them (exact versions, hashes of the files, and which
package required each), and files that are kept unchanged in this repository, with their licences beside them."""

import re
from dataclasses import dataclass, replace
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
    pins: list[Pinned] = []
    for line in path.read_text().splitlines():
        if pin := _PIN.match(line):
            pins.append(Pinned(pin[1], pin[2], (), ()))
        if pins:
            via = [name for name in _VIA.findall(line) if name not in ("via", "-c")]
            pins[-1] = replace(pins[-1], hashes=(*pins[-1].hashes, *_HASH.findall(line)), via=(*pins[-1].via, *via))
    return pins


@dataclass(frozen=True, slots=True)
class Vendored:
    """One file of an npm package. `sha256` is that of the published file, `path` is from the root of the repository."""

    name: str
    version: str
    licence: str
    published: str
    path: Path
    sha256: str


VENDORED = (
    Vendored(
        name="idiomorph",
        version="0.8.0",
        licence="0BSD",
        published="dist/idiomorph.esm.js",
        path=Path("api/admin/static/idiomorph-0.8.0.js"),
        sha256="e1e2c7dbd606233d302bac48074fd1307c15609b77ea485c18f1b13d6be67c14",
    ),
)
