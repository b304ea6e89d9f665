"""Long work in short transactions, with time between them for those of others."""

import time
from collections.abc import Callable

LONGEST_PAUSE_S = 1.0


def in_batches(batch: Callable[[], int]) -> int:
    """Repeat a batch, one transaction or two, until one has nothing to do. Returns the sum of what they did.

    After each one as much time as it took is left to others: whoever waits for SQLite's lock looks only now and then
    whether it is free.
    """
    total = 0
    while True:
        began = time.perf_counter()
        if (done := batch()) == 0:
            return total
        total += done
        time.sleep(min(time.perf_counter() - began, LONGEST_PAUSE_S))
