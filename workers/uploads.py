"""Upload of KV alongside ingestion, in a separate thread: a slow object store delays nothing else."""

import logging
import threading

from ragkv.service.kv_admin.upload import Uploader
from ragkv.service.parts import Parts
from workers.repeating import attempt

log = logging.getLogger(__name__)

INTERVAL_S = 15.0
LONGEST_S = 300.0


class Uploads:
    """A thread that uploads what is due: at once when KV was kept, and periodically. None without an object store."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._uploader = Uploader(parts)
        self._due = threading.Event()
        self._stop = threading.Event()

    def start(self) -> None:
        if self._parts.kv_remote is not None:
            threading.Thread(target=self._run, name="uploads", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        self._due.set()

    def kept(self) -> None:
        """KV was kept on this disk."""
        self._due.set()

    def _run(self) -> None:
        """While nothing can be uploaded the waits grow, whatever is kept meanwhile."""
        wait_s = INTERVAL_S
        while not self._stop.is_set():
            if attempt(self._upload, "uploads"):
                wait_s = INTERVAL_S
                self._due.wait(wait_s)
                self._due.clear()
            else:
                self._stop.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_S)

    def _upload(self) -> bool:
        """Whether the object store takes uploads."""
        done = self._uploader.upload_due()
        self._parts.worker_counters.uploads(*done)
        if done.files:
            log.info("uploaded %d KV files of %d bytes", done.files, done.bytes)
        return bool(done.files) or not done.failed
