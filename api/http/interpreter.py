"""How the service's process shares Python's interpreter between the event loop and the threads beside it."""

import gc
import sys

from ragkv.threads import share_cores

SWITCH_S = 0.0001
"""How long a thread may keep the interpreter from others, the event loop among them: a fiftieth of Python's default."""
GARBAGE = (2_000, 10, 5)
"""Thresholds of the garbage collector, which stops everything while it looks through all objects: under load with Python's
own it does so every other second, with these every ten."""


def share() -> None:
    """For the whole process, before it serves."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE)
    share_cores()


def settle() -> None:
    """What has been loaded stays: the collector need not look through half a million objects of it, which takes half a second."""
    gc.collect()
    gc.freeze()
