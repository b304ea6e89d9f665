"""Text whose characters differ in look: signs before raised and lowered numbers, `~~` around struck words."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from ingest.parse.raised import would_join
from ingest.parse.struck import struck


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look. sign: of those that are raised or lowered, one of `raised.SIGNS`."""

    text: str
    sign: str = ""
    is_struck: bool = False


def text_of(runs: Iterable[Run]) -> str:
    """The text of the runs as one. A raised or lowered number has its sign where it follows a digit."""
    runs = list(runs)
    if not any(run.sign or run.is_struck for run in runs):
        return "".join(run.text for run in runs)
    return "".join(
        struck("".join(run.text for run in group)) if is_struck else "".join(run.text for run in group)
        for is_struck, group in groupby(_signed(runs), key=lambda run: run.is_struck)
    )


def _signed(runs: Iterable[Run]) -> Iterator[Run]:
    preceding = sign = ""
    for run in runs:
        if run.text:
            is_number = run.sign != sign and would_join(preceding, run.text)
            yield replace(run, text=f"{run.sign}{run.text}") if is_number else run
            preceding, sign = run.text[-1], run.sign
