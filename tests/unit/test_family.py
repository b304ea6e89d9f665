"""Of a vLLM that was killed nothing is left."""

import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ragkv.engine.family import Family, _files
from tests.support.like_vllm import core
from tests.unit.test_orphans import is_running

MAPS = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
    print("mapped", flush=True)
    time.sleep(60)
"""

Started = tuple[BaseProcess, int, set[Path]]


@pytest.fixture
def started() -> Started:
    """A core, its child, and the files of both."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=core, args=(theirs,))
    process.start()
    child, memory, address = ours.recv()
    return process, child, {Path(memory), Path(address)}


@pytest.mark.parametrize("how", ["alive", "dead before", "stopped"])
def test_killing_a_family_leaves_neither_processes_nor_files(started: Started, how: str) -> None:
    process, child, files = started
    family = Family.of([process])
    if how == "dead before":
        process.kill()
        process.join()
        assert is_running(child)
    elif how == "stopped":
        os.kill(process.pid, signal.SIGSTOP)
    assert all(path.exists() for path in files)
    family.kill()
    assert not process.is_alive()
    assert not is_running(child)
    assert not any(path.exists() for path in files)


def test_what_lies_in_a_folder_of_the_memory_is_nobodys_leavings() -> None:
    """The weights of a model, say, that were put there to be loaded quickly."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with subprocess.Popen([sys.executable, "-c", MAPS, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()

            assert path not in _files(process.pid)

            process.kill()


def test_what_cannot_be_removed_keeps_nothing_else(tmp_path: Path) -> None:
    files = {tmp_path / str(number) for number in range(8)}
    for path in files:
        path.touch()
    (tmp_path / "folder").mkdir()
    Family(files=frozenset({*files, tmp_path / "folder"})).kill()
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_no_family_is_killed_without_harm() -> None:
    Family().kill()
