"""Progress bars of long commands."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def progress_bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def shown(steps: Iterable[T], what: str, how_far: Callable[[T], tuple[int, int]]) -> T:
    """The last of `steps`, with a bar on standard error meanwhile. `how_far`: what is done of what there is to do."""
    bars = progress_bars(Console(stderr=True))
    with bars:
        task = bars.add_task(what, total=None)
        for step in steps:
            done, total = how_far(step)
            bars.update(task, total=total, completed=done)
    return step
