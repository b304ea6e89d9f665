"""Measures the sandbox, as Markdown tables: `python -m bench.measure.hostile_files [corpus | reported | twenty | sample
| FOLDER | formats FOLDER]`."""

import sys
import tempfile
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
from tests.support.hostile_files import Made, corpus, reported, twenty

ROUNDS = 10
HOSTILE = {"corpus": corpus, "reported": reported, "twenty": twenty}
ENDINGS = {"read": (" characters",), "crashed": ("crashed on it", "failed on it"), "hung": (" s to read",)}
SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "documents"


def hostile(files: dict[str, Made], parser: Parser) -> None:
    """Each file with the default limits, and how long the next, honest one took."""
    print("| file | bytes | seconds | outcome | next file, s |\n|---|---|---|---|---|")
    for name, make in files.items():
        body = make()
        seconds, outcome = _read(parser, name, body)
        following, text = _read(parser, "next.txt", b"words")
        assert text == "5 characters", text
        print(f"| {name} | {len(body):,} | {seconds:.2f} | {outcome} | {following:.3f} |", flush=True)


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
        _, outcome = _read(parser, path.name, path.read_bytes())
        ending = next((end for end, words in ENDINGS.items() if any(word in outcome for word in words)), "refused")
        outcomes[path.suffix.lower()][ending] += 1
        refusals += [f"- {path.name}: {outcome}"] if ending != "read" else []
    print("| format | tried | read | refused | crashed | hung |\n|---|---|---|---|---|---|")
    for suffix, counts in [*sorted(outcomes.items()), ("all", sum(outcomes.values(), Counter()))]:
        print(
            f"| {suffix} | {counts.total()} | "
            + " | ".join(f"{counts[e]}" for e in ("read", "refused", "crashed", "hung")),
            "|",
        )
    print("", *refusals, sep="\n")


def _read(parser: Parser, name: str, body: bytes) -> tuple[float, str]:
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        began = time.perf_counter()
        try:
            outcome = f"{len(parser.parse(name, file).text):,} characters"
        except RagKVError as error:
            outcome = f"{type(error).__name__}: {str(error).removeprefix(name + ': ')}"
        return time.perf_counter() - began, outcome


def _outcome(read: Callable[[str, Any], object], name: str, body: object) -> object:
    try:
        return read(name, body)
    except Rejected as refusal:
        return str(refusal)


def main(wanted: str) -> None:
    settings = Settings()
    parser = Parser(Limits(settings.parse_seconds, settings.parse_memory_mib), ocr_limits(settings))
    _read(parser, "first.txt", b"words")
    if wanted in HOSTILE:
        hostile(HOSTILE[wanted](), parser)
    elif wanted == "formats":
        formats(sorted(path for path in Path(sys.argv[2]).rglob("*") if path.is_file()), parser)
    else:
        folder = SAMPLE if wanted == "sample" else Path(wanted)
        overhead(sorted(path for path in folder.rglob("*") if path.is_file()), parser)
    parser.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "reported")
