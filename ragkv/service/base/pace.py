"""Intervals at which long-running work reports its progress."""

import time

SPEAK_EVERY_S = 0.5


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
