"""One kind of inconsistency that `fsck` looks for, and how it is repaired."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ragkv.ids import utc_now
from ragkv.service.checks.cleaning import FILE_GRACE, UPLOAD_GRACE
from ragkv.service.parts import Parts


@dataclass(frozen=True, slots=True)
class Grace:
    """Minimum ages of what counts as a fault: the service may be about to finish what is younger."""

    rows: timedelta
    uploads: timedelta
    kv: timedelta

    @property
    def uploads_before(self) -> datetime:
        return utc_now() - self.uploads

    @property
    def kv_before(self) -> datetime:
        return utc_now() - self.kv


WHILE_RUNNING = Grace(rows=timedelta(minutes=5), uploads=UPLOAD_GRACE, kv=FILE_GRACE)
WHILE_STOPPED = Grace(rows=timedelta(0), uploads=timedelta(0), kv=timedelta(0))


@dataclass(frozen=True, slots=True)
class ConsistencyCheck:
    """`find` gives the names of what is amiss, and `mend` gets them.

    `remedy` says what mending does. Both may run while others read and write: what `find` gives is looked at again.
    """

    name: str
    about: str
    remedy: str
    find: Callable[[Grace, Parts], Iterable[str]]
    mend: Callable[[Sequence[str], Grace, Parts], object]
