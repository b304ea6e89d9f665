"""Steps that a worker's threads repeat."""

import logging
import threading

import pytest

from ragkv.errors import Unavailable
from ragkv.observe.throttled_log import EVERY_S, ThrottledLog
from workers.repeating import repeat


@pytest.mark.parametrize("error", [Unavailable("away"), OSError("full"), AssertionError("a bug")])
def test_whatever_goes_wrong_in_a_step_the_next_one_follows(error: Exception, caplog: pytest.LogCaptureFixture):
    stop, steps = threading.Event(), []

    def step() -> bool:
        steps.append(1)
        if len(steps) == 3:
            stop.set()
            return True
        raise error

    repeat(step, stop, 0.0, "sweep")
    assert len(steps) == 3
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["sweep"] * 2


def test_a_warning_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr("ragkv.observe.throttled_log.time.monotonic", lambda: now)
    log = ThrottledLog(logging.getLogger("throttled"))
    for _ in range(3):
        log.warning("away: %s", now)
    now += EVERY_S
    log.warning("away: %s", now)
    assert [record.getMessage() for record in caplog.records] == ["away: 1000.0", "away: 1060.0"]
