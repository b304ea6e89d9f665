"""Warnings that are logged only once in a while, for failures that may recur with every question or file.

Apart from `ragkv.observe.logs`: what measures an engine alone uses it where structlog is not installed.
"""

import logging
import time

EVERY_S = 60.0


class ThrottledLog:
    """Logs the first warning, and then one every EVERY_S. Threads may share it: two of them at once may log both."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0

    def warning(self, message: str, *args: object) -> None:
        """Log as `logging.Logger.warning` does, unless the last one was a short while ago."""
        moment = time.monotonic()
        if moment >= self._next:
            self._next = moment + EVERY_S
            self._logger.warning(message, *args)
