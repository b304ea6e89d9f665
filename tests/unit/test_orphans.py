"""A service that is killed leaves no worker behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from api.worker_process import COMMAND

SERVICE = """
import os, sys, time
from api import worker_process
worker_process.RESTART_AFTER_S = 0.01
worker = worker_process.WorkerProcess(os.environ, (sys.executable, "-c", sys.argv[1], str(os.getpid())))
worker.start()
time.sleep(60)
"""
WORKER = """
import os, sys, time
from workers.child import end_with
end_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
TOO_LATE = """
import sys
from workers.child import end_with
end_with(1)
print("alive")
"""


@pytest.mark.parametrize("restarts", [0, 1], ids=["the first worker", "one that was started again"])
def test_a_worker_ends_with_the_service_that_is_killed(restarts: int) -> None:
    service = subprocess.Popen([sys.executable, "-c", SERVICE, WORKER], stdout=subprocess.PIPE)
    for _ in range(restarts):
        os.kill(int(service.stdout.readline()), signal.SIGKILL)
    worker = int(service.stdout.readline())
    time.sleep(0.3)
    os.kill(worker, 0)
    service.kill()
    service.wait()
    deadline = time.monotonic() + 10
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """A process that nobody has asked after stays in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_whose_service_was_gone_before_it_could_ask_ends_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", TOO_LATE], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")


def test_the_worker_of_a_service_asks_for_it() -> None:
    assert COMMAND[1:4] == ("-m", "workers.child", str(os.getpid()))
