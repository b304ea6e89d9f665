"""The clocks of `tests/chaos/clock.py`: a process that follows one sees it jump."""

import time
from ctypes import c_double
from multiprocessing import get_context
from multiprocessing.connection import Connection

import kombu.transport.redis
import pytest

from ragkv.ids import utc_now
from tests.chaos.clock import follow, new_clock

HOUR_S = 3600.0


def test_a_process_goes_by_its_clock_and_sees_it_jump():
    context = get_context("forkserver")
    ours, theirs = context.Pipe()
    clock = new_clock()
    process = context.Process(target=_tell_the_time, args=(clock, theirs))
    process.start()
    for ahead in (0.0, HOUR_S, -HOUR_S):
        clock.value = ahead
        ours.send("what time is it?")
        assert ours.recv() == pytest.approx([time.time() + ahead] * 3, abs=60)
    ours.send(None)
    process.join()
    assert process.exitcode == 0


def _tell_the_time(clock: c_double, ours: Connection) -> None:
    """As each of the sources has it that a worker reads."""
    follow(clock)
    while ours.recv():
        ours.send([time.time(), kombu.transport.redis.time(), utc_now().timestamp()])
