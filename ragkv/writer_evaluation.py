"""Requested evaluations of writers, run by a worker: one file each in the data folder."""

from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from ragkv.clock import utc_now
from ragkv.disk import replace_file
from ragkv.writer import Gate

LONGEST = timedelta(hours=12)


class State(StrEnum):
    """Progress of an evaluation."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation on a collection's text. `done`: of `contexts` held-out contexts; `attempts`: how often a worker
    began it.

    `gate`: its figures, once done. `error`: why it failed, for people.
    """

    collection: str
    contexts: int
    asked_at: datetime
    state: State = State.QUEUED
    done: int = 0
    attempts: int = 0
    gate: Gate | None = None
    error: str | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a worker will end it. One that was asked for long ago was lost with its message."""
        return self.state in (State.QUEUED, State.RUNNING) and utc_now() - self.asked_at < LONGEST


def read_evaluation(name: str, folder: Path) -> Evaluation | None:
    """The last evaluation of the writer of this name, None if there is none, or none that can be read."""
    try:
        return msgspec.json.decode(_file(name, folder).read_bytes(), type=Evaluation)
    except (OSError, msgspec.DecodeError):
        return None


def write_evaluation(name: str, evaluation: Evaluation, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(_file(name, folder), msgspec.json.encode(evaluation))


def _file(name: str, folder: Path) -> Path:
    return folder / f"{name}.json"
