"""The Celery worker as a child process of the embedded service: start, restart when it exits, stop."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping

log = logging.getLogger(__name__)

COMMAND = (
    sys.executable, "-m", "workers.child", str(os.getpid()), "--app", "workers.app", "--quiet", "worker", "--pool", "solo", "--loglevel",
    "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat",
)  # fmt: skip
RESTART_AFTER_S = 2.0
STOP_TIMEOUT_S = 20.0


class WorkerProcess:
    """Keeps one worker running. It gets the settings as environment variables."""

    def __init__(self, environ: Mapping[str, str], command: tuple[str, ...] = COMMAND) -> None:
        self._environ = dict(environ)
        self._command = command
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = threading.Thread(target=self._keep_running, name="worker", daemon=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self._process = self._launch()
        self._watcher.start()

    def stop(self) -> None:
        """Stop it and wait: its document goes back to the queue. It is killed if it takes too long."""
        with self._lock:
            self._stopping.set()
            process = self._process
        assert process is not None, "start() comes first"
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.warning("the worker did not stop in time and is killed; what it was doing will be done again")
            process.kill()
        self._watcher.join()

    def kill(self) -> None:
        """Kill it at once; its document will be processed again."""
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None:
            process.kill()

    def _keep_running(self) -> None:
        process = self._process
        while process is not None:
            code = process.wait()
            if not self._stopping.wait(RESTART_AFTER_S):
                log.warning("the worker ended (exit code %d) and is started again", code)
            with self._lock:
                if self._stopping.is_set():
                    return
                self._process = process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in a terminal is for the service, which then stops the worker itself.
        return subprocess.Popen(  # noqa: S603 - the command is ours
            self._command, env=self._environ, stdin=subprocess.DEVNULL, start_new_session=True
        )
