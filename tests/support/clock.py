"""A clock for tests of what depends on the time."""


class Clock:
    """A clock that is put forward by hand, in the place of the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s
