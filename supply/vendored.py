"""Third-party files that are kept unchanged in this repository, with their licences beside them."""

from dataclasses import dataclass
from pathlib import Path


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
