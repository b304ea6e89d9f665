"""A service that is killed leaves neither a worker nor a core of vLLM behind."""

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
WITH_CORE = """
import multiprocessing, sys, time
from tests.support.like_vllm import core
context = multiprocessing.get_context(sys.argv[1])
ours, theirs = context.Pipe()
process = context.Process(target=core, args=(theirs,))
process.start()
print(process.pid, ours.recv()[0], flush=True)
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
    assert_ends_with(service, worker)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_core_ends_with_the_service_that_is_killed(method: str) -> None:
    service = subprocess.Popen([sys.executable, "-c", WITH_CORE, method], stdout=subprocess.PIPE)
    core, child = map(int, service.stdout.readline().split())
    try:
        assert_ends_with(service, core)
    finally:
        os.kill(child, signal.SIGKILL)


def assert_ends_with(service: "subprocess.Popen[bytes]", pid: int) -> None:
    time.sleep(0.3)
    assert is_running(pid)
    service.kill()
    service.wait()
    deadline = time.monotonic() + 10
    while is_running(pid):
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
