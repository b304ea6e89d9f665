"""Steps that a worker's threads repeat, even if one of them fails."""

import logging
import threading
from collections.abc import Callable

from ragkv.errors import RagKVError

log = logging.getLogger(__name__)


def repeat(step: Callable[[], bool], stop: threading.Event, interval_s: float, name: str) -> None:
    """Repeat a step until `stop` is set: at once while it had something to do, else, and after an error, which is
    logged, after the interval."""
    wait_s = 0.0
    while not stop.wait(wait_s):
        wait_s = 0.0 if attempt(step, name) else interval_s


def attempt(step: Callable[[], object], name: str) -> bool:
    """Whether a step had something to do. An error is logged, a bug too: it must not end the thread."""
    try:
        return bool(step())
    except (RagKVError, OSError) as error:
        log.warning("%s: %s", name, error)
    except Exception:
        log.exception(name)
    return False
