"""Measures the sandbox, as Markdown tables: `python -m bench.measure.hostile_files sample`, `FOLDER` or `formats
FOLDER`."""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_high
from typing import Any

from ingest.parse import parse
from ingest.parts import parser_of
from ingest.sandbox.parser import Parser
from ragkv.errors import RagKVError, Rejected
from ragkv.settings import Settings

ROUNDS = 10
ENDINGS = {"crashed": ("crashed on it", "failed on it"), "hung": (" s to read",)}
SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "documents"


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def print_by_suffix(counts: Mapping[str, Counter[str]], names: Sequence[str]) -> None:
    """Print the rows of a table: the counts of those names by the ends of files' names, and of all together."""
    for suffix, row in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        print(f"| {suffix} | {' | '.join(str(row[name]) for name in names)} |")


def overhead(paths: Iterable[Path], parser: Parser) -> None:
    """Milliseconds of parsing here and in the sandbox, medians; the texts must be equal."""
    print("| file | in the process, ms | in the sandbox, ms | equal |\n|---|---|---|---|")
    for path in paths:
        here, inside, equal = [], [], True
        for _ in range(ROUNDS):
            began = time.perf_counter()
            wanted = _outcome(parse, path.name, path.read_bytes())
            here.append(time.perf_counter() - began)
            began = time.perf_counter()
            with path.open("rb") as body:
                equal = equal and wanted == _outcome(parser.parse, path.name, body)
            inside.append(time.perf_counter() - began)
        print(
            f"| {path.name} | {median_high(here) * 1e3:.1f} | {median_high(inside) * 1e3:.1f} | {equal} |", flush=True
        )


def formats(paths: Iterable[Path], parser: Parser) -> None:
    """By the end of the files' names: how many were tried, read, refused, and failed or ended by a limit."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    refusals = []
    for path in paths:
        ending = "read"
        try:
            with path.open("rb") as body:
                parser.parse(path.name, body)
        except RagKVError as error:
            reason = str(error).removeprefix(f"{path.name}: ")
            ending = next((end for end, words in ENDINGS.items() if any(word in reason for word in words)), "refused")
            refusals.append(f"- {path.name}: {type(error).__name__}: {reason}")
        outcomes[path.suffix.lower()].update(["tried", ending])
    print("| format | tried | read | refused | crashed | hung |\n|---|---|---|---|---|---|")
    print_by_suffix(outcomes, ("tried", "read", "refused", "crashed", "hung"))
    print("", *refusals, sep="\n")


def _outcome(read: Callable[[str, Any], object], name: str, body: object) -> object:
    try:
        return read(name, body)
    except Rejected as refusal:
        return str(refusal)


def main(wanted: str) -> None:
    parser = parser_of(Settings())
    parser.start()
    if wanted == "formats":
        formats(files_in(Path(sys.argv[2])), parser)
    else:
        overhead(files_in(SAMPLE if wanted == "sample" else Path(wanted)), parser)
    parser.close()


if __name__ == "__main__":
    main(sys.argv[1])
