"""Long work: in short transactions with pauses for others, the intervals at which it reports its progress, and when to
try again after an outage.

An outage is not caused by the work in hand: a service that cannot be reached, a full or failing disk. The same work
succeeds once the thing is back, so it never counts against a document.
"""

import time
from collections.abc import Callable, Iterator

from ragkv.errors import Unavailable
from ragkv.files_io import is_disk_error

LONGEST_PAUSE_S = 1.0
SPEAK_EVERY_S = 0.5
FIRST_DELAY_S = 5.0
LONGEST_DELAY_S = 60.0


def timed(batch: Callable[[], int]) -> Iterator[tuple[int, float]]:
    """Repeat a batch, one transaction or two, until one has nothing to do.
    Yields what each did and the seconds it took.

    As much time should be left to others in between: a process that waits for SQLite's lock tries only now and then.
    """
    while True:
        began = time.perf_counter()
        if (done := batch()) == 0:
            return
        yield done, time.perf_counter() - began


def in_batches(batch: Callable[[], int]) -> int:
    """Repeat a batch until one has nothing to do, with pauses for others. Returns the sum of what they did."""
    total = 0
    for done, took_s in timed(batch):
        total += done
        time.sleep(min(took_s, LONGEST_PAUSE_S))
    return total


class ProgressInterval:
    """Lets long work speak every half second, counted from its beginning."""

    def __init__(self) -> None:
        self._spoken = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time to speak; if so, the next time is counted from now."""
        moment = time.monotonic()
        if moment - self._spoken < SPEAK_EVERY_S:
            return False
        self._spoken = moment
        return True


def is_outage(error: Exception) -> bool:
    """Whether the same call may succeed later, with nothing changed but its surroundings."""
    return isinstance(error, Unavailable) or is_disk_error(error)


def retry_delay_s(failures: int, first_s: float = FIRST_DELAY_S) -> float:
    """Exponential backoff: seconds to wait after `failures` failures in a row, at most LONGEST_DELAY_S."""
    return min(first_s * 2.0 ** min(failures - 1, 30), LONGEST_DELAY_S)
