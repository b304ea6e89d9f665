"""The tables of clients and the examples for frameworks in the documentation, and the versions that are installed."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
_ROW = re.compile(r"^\| \[[^\]]+\]\(\.\./tests/clients/scripts/(\S+)\) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
_EXAMPLE = re.compile(r"^\*\*(\w+)\*\*.*?```python\n(.*?)```", re.MULTILINE | re.DOTALL)
_PIN = re.compile(r"^([\w-]+)(?:\[[\w,]+\])?==(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: the script, `name version` of packages, and what the client does."""

    script: str
    packages: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def needs_openai_2(self) -> bool:
        return self.packages[0] in pins("requirements-openai2.txt")


def pins(name: str) -> set[str]:
    """`name version` of each package in a list."""
    if name.endswith(".json"):
        return {" ".join(pin) for pin in json.loads((HERE / name).read_text())["dependencies"].items()}
    return {" ".join(pin) for pin in _PIN.findall((HERE / name).read_text())}


def examples() -> dict[str, str]:
    """Code of the page for OpenAI's clients, by framework."""
    return dict(_EXAMPLE.findall((DOCS / "OPENAI.md").read_text()))


def _rows(page: str) -> list[Row]:
    found = _ROW.findall((DOCS / page).read_text())
    return [Row(script, tuple(packages.split(", ")), tuple(steps.split(", "))) for script, packages, steps in found]


ROWS = [*_rows("OPENAI.md"), *_rows("MCP.md")]
