"""Progress bars of long commands; in a log file lines, now and then."""

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

T = TypeVar("T")

LINE_EVERY_S = 30.0
"""Seconds between two lines where no bar can be drawn."""


def progress_bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return (Progress if console.is_terminal else _Lines)(*columns, console=console)


def shown(steps: Iterable[T], what: str, how_far: Callable[[T], tuple[int, int]]) -> T:
    """The last of `steps`, with a bar on standard error meanwhile. `how_far`: what is done of what there is to do."""
    bars = progress_bars(Console(stderr=True))
    with bars:
        task = bars.add_task(what, total=None)
        for step in steps:
            done, total = how_far(step)
            bars.update(task, total=total, completed=done)
    return step


class _Lines(Progress):
    """Lines in place of bars: without a terminal Rich draws these at the end alone, hours later perhaps."""

    _told_at = 0.0

    def start(self) -> None:
        super().start()
        self._told_at = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        moment = time.monotonic()
        if moment - self._told_at >= LINE_EVERY_S:
            self._told_at = moment
            task = next(task for task in self.tasks if task.id == task_id)
            of_all = "" if task.total is None else f" of {task.total:g}"
            self.console.print(f"{task.description}: {task.completed:g}{of_all}", highlight=False)
