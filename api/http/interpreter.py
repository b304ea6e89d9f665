"""Settings of the Python interpreter, which the event loop shares with threads: switching and garbage collection."""

import gc
import sys

from ragkv.threads import share_cores

SWITCH_S = 0.0001
"""How long a thread may keep the interpreter from others, the event loop among them: a fiftieth of Python's default."""
GARBAGE = (2_000, 10, 5)
"""Thresholds of the garbage collector, which stops everything while it looks through all objects: every ten seconds
under load, instead of every other second with Python's defaults."""


def share() -> None:
    """Configure the process, before it serves."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE)
    share_cores()


def settle() -> None:
    """Exempt everything loaded so far from garbage collection: half a million objects, half a second a collection."""
    gc.collect()
    gc.freeze()
