"""Cores are forks of a server, with the environment that spawned ones would have."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ASK = """
import json, os
from ragkv.engine import fork
from tests.support.like_vllm import tell

fork.PRELOAD = "wave"

def core():
    context = fork.core_context()
    ours, theirs = context.Pipe()
    process = context.Process(target=tell, args=(theirs, "wave", "VLLM_SET", "RAGKV_SET"))
    process.start()
    told = ours.recv()
    process.join()
    return told

os.environ["VLLM_SET"] = "before"
cores = {"first": core()}
os.environ["RAGKV_SET"] = "later"
cores["second"] = core()
del os.environ["RAGKV_SET"]
cores["third"] = core()
fork.end_server()
cores["after the server's death"] = core()
os.unlink(fork.forkserver._forkserver._forkserver_address)
cores["after its socket was removed"] = core()
os.environ["VLLM_SET"] = "after"
cores["of other libraries"] = core()
print(json.dumps({"service": os.getpid(), **cores}))
"""

KILLED = """
import os, signal
from multiprocessing import forkserver
from ragkv.engine import fork
from tests.support.like_vllm import tell

fork.PRELOAD = "tests.support.leaving_nothing"
context = fork.core_context()
ours, theirs = context.Pipe()
context.Process(target=tell, args=(theirs, "")).start()
ours.recv()
print(forkserver._forkserver._forkserver_address, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


KILLED_WHILE_ITS_CORE_STARTS = """
import os, signal, time
from ragkv.engine import fork

fork.PRELOAD = "wave"
core = fork.core_context().Process(target=time.sleep, args=(60,))
core.start()
print(core.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def told() -> dict[str, list]:
    """Of each core: the process that it is a fork of, whether the preloaded module was there, two variables."""
    output = subprocess.run([sys.executable, "-c", ASK], capture_output=True, check=True).stdout
    return json.loads(output)


def test_a_core_is_a_fork_of_a_process_that_has_imported(told: dict[str, list]):
    server, *seen = told["first"]
    assert server != told["service"]
    assert seen == [True, "before", None]


def test_the_next_core_is_a_fork_of_the_same_process_with_the_environment_of_its_own_start(told: dict[str, list]):
    server = told["first"][0]
    assert told["second"] == [server, True, "before", "later"]
    assert told["third"] == [server, True, "before", None]


def test_a_server_that_died_is_replaced(told: dict[str, list]):
    server, *seen = told["after the server's death"]
    assert server not in (told["first"][0], told["service"])
    assert seen == [True, "before", None]


def test_a_server_whose_socket_was_removed_is_replaced(told: dict[str, list]):
    server, *seen = told["after its socket was removed"]
    assert server not in (told["after the server's death"][0], told["service"])
    assert seen == [True, "before", None]


def test_a_core_whose_libraries_would_read_other_variables_is_spawned(told: dict[str, list]):
    assert told["of other libraries"] == [told["service"], False, "after", None]


def test_a_service_that_is_killed_leaves_no_socket_of_its_server():
    address = Path(
        subprocess.run([sys.executable, "-c", KILLED], capture_output=True, check=False).stdout.decode().strip()
    )
    deadline = time.monotonic() + 20
    while address.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert address.name.startswith("listener-")


def test_a_service_that_is_killed_leaves_no_core_that_has_no_model_yet():
    command = [sys.executable, "-c", KILLED_WHILE_ITS_CORE_STARTS]
    core = int(subprocess.run(command, capture_output=True, check=False, timeout=20).stdout)
    deadline = time.monotonic() + 20
    while psutil.pid_exists(core):
        assert time.monotonic() < deadline
        time.sleep(0.05)
