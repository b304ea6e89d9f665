"""Renewal of a lease during steps that take longer than the lease lasts."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ragkv.errors import Conflict, Unavailable
from ragkv.service.documents.lease import LEASE, Lease

log = logging.getLogger(__name__)

INTERVAL_S = LEASE.total_seconds() / 4


@contextmanager
def renewing(lease: Lease, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Renew the lease from a thread until the block ends. Renewal stops once the lease is lost; the next write
    notices."""
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(lease, interval_s, stop), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _renew(lease: Lease, interval_s: float, stop: threading.Event) -> None:
    while not stop.wait(interval_s):
        try:
            lease.renew()
        except Conflict:
            return
        except Unavailable as error:
            log.warning("cannot renew the lease of document %s yet: %s", lease.document_id, error)
