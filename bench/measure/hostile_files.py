"""Measures the sandbox, as Markdown tables: `python -m bench.measure.hostile_files sample`, `FOLDER` or `formats
FOLDER`."""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median_high
from typing import Any

from ingest.parse import parse
from ingest.parts import ocr_limits
from ingest.sandbox.messages import Limits
from ingest.sandbox.parser import Parser
from ragkv.errors import RagKVError, Rejected
from ragkv.settings import Settings

ROUNDS = 10
ENDINGS = {"crashed": ("crashed on it", "failed on it"), "hung": (" s to read",)}
SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "documents"


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
        outcomes[path.suffix.lower()][ending] += 1
    print("| format | tried | read | refused | crashed | hung |\n|---|---|---|---|---|---|")
    for suffix, counts in [*sorted(outcomes.items()), ("all", sum(outcomes.values(), Counter()))]:
        print(
            f"| {suffix} | {counts.total()} | "
            + " | ".join(f"{counts[e]}" for e in ("read", "refused", "crashed", "hung")),
            "|",
        )
    print("", *refusals, sep="\n")


def _outcome(read: Callable[[str, Any], object], name: str, body: object) -> object:
    try:
        return read(name, body)
    except Rejected as refusal:
        return str(refusal)


def main(wanted: str) -> None:
    settings = Settings()
    parser = Parser(Limits(settings.parse_seconds, settings.parse_memory_mib), ocr_limits(settings))
    parser.start()
    if wanted == "formats":
        formats(sorted(path for path in Path(sys.argv[2]).rglob("*") if path.is_file()), parser)
    else:
        folder = SAMPLE if wanted == "sample" else Path(wanted)
        overhead(sorted(path for path in folder.rglob("*") if path.is_file()), parser)
    parser.close()


if __name__ == "__main__":
    main(sys.argv[1])
