"""A process whose time of day can be changed from outside while it runs."""

import time
from ctypes import c_double
from datetime import datetime, tzinfo
from multiprocessing import get_context

import kombu.transport.redis

import ragkv.ids


def new_clock() -> c_double:
    """Seconds that clocks are ahead of the right time: 0.0 at first. Processes that are given it see every change."""
    clock: c_double = get_context("forkserver").RawValue(c_double, 0.0)
    return clock


def follow(clock: c_double) -> None:
    """From now on this process, as far as it reads the time of day, is ahead. Timers are not: the kernel's never
    jump."""
    right = time.time

    def seconds() -> float:
        return right() + clock.value

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(seconds(), tz)

    time.time = kombu.transport.redis.time = seconds
    ragkv.ids.datetime = Ahead
