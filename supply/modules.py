"""A map of the code: every module with the first sentence of its docstring (`make map`)."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("ragkv", "ingest", "api", "workers", "bench", "migrations", "supply")


def modules(root: Path) -> Iterator[tuple[Path, str]]:
    """Modules under `root` with the first sentence of their docstrings; a folder comes before what it holds."""
    for package in PACKAGES:
        for path in sorted(
            (root / package).rglob("*.py"), key=lambda path: (path.parent, path.stem != "__init__", path)
        ):
            if "versions" not in path.relative_to(root).parts:
                paragraph = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
                yield path.relative_to(root), re.split(r"(?<=\.)\s", " ".join(paragraph.split()), maxsplit=1)[0]


def line(path: Path, sentence: str) -> str:
    """One line of the map: a folder's name stands alone, a module's is indented below it."""
    return f"\n{path.parent}/  {sentence}\n" if path.stem == "__init__" else f"  {path.name:<28} {sentence}\n"


if __name__ == "__main__":
    sys.stdout.writelines(line(*module) for module in modules(Path()))
