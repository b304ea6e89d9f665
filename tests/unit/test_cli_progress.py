"""Progress of a long command that writes to a log file."""

import io

import pytest
from rich.console import Console

from ragkv.cli import progress
from ragkv.cli.progress import progress_bars


def told(every_s: float, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False) -> list[str]:
    monkeypatch.setattr(progress, "LINE_EVERY_S", every_s)
    out = io.StringIO()
    with progress_bars(Console(file=out, force_terminal=terminal, width=80)) as bars:
        task = bars.add_task("encoding passages", total=200)
        bars.update(task, completed=100)
        bars.advance(task)
        return out.getvalue().splitlines()


def test_a_log_file_has_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch):
    assert told(0, monkeypatch) == ["encoding passages: 100 of 200", "encoding passages: 101 of 200"]
    assert told(30, monkeypatch) == []


def test_a_terminal_has_bars_alone(monkeypatch: pytest.MonkeyPatch):
    assert not any(line.startswith("encoding passages: 10") for line in told(0, monkeypatch, terminal=True))
