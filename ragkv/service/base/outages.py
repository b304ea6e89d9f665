"""Errors that are not caused by the work in hand: an unreachable service, a full or failing disk.

The same work succeeds once the thing is back, so such an error never counts against a document.
"""

from ragkv.errors import Unavailable
from ragkv.files_io import is_disk_error

FIRST_DELAY_S = 5.0
LONGEST_DELAY_S = 60.0


def is_outage(error: Exception) -> bool:
    """Whether the same call may succeed later, with nothing changed but its surroundings."""
    return isinstance(error, Unavailable) or is_disk_error(error)


def retry_delay_s(failures: int, first_s: float = FIRST_DELAY_S) -> float:
    """Exponential backoff: seconds to wait after `failures` failures in a row, at most LONGEST_DELAY_S."""
    return min(first_s * 2.0 ** min(failures - 1, 30), LONGEST_DELAY_S)
