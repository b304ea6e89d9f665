"""The encoder in a process of its own."""

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from ragkv.errors import Rejected, Unavailable
from ragkv.models import encoder_folder
from ragkv.retrieve.encoder import Encoder, EncoderProcess
from ragkv.settings import Settings
from tests.conftest import CACHE
from tests.support.over_http import wait_until
from tests.unit.test_orphans import is_running

TEXTS = ["Who wrote the first program?", "x" * 5000, "„Fragen“ auf Deutsch"]


@pytest.fixture(scope="module")
def apart():
    encoder = EncoderProcess(encoder_folder(Settings(data_dir=CACHE)))
    yield encoder
    encoder.close()


def child() -> int:
    (process,) = multiprocessing.active_children()
    assert process.pid is not None
    return process.pid


def test_it_encodes_as_the_encoder_does(apart: EncoderProcess):
    here = Encoder.load(encoder_folder(Settings(data_dir=CACHE)))

    assert apart.dim == here.dim
    np.testing.assert_allclose(apart.encode(TEXTS), here.encode(TEXTS), atol=1e-5)
    assert apart.count_tokens(TEXTS) == here.count_tokens(TEXTS) > len(TEXTS)


def test_many_threads_may_use_it_and_a_process_that_was_killed_is_started_again(apart: EncoderProcess):
    with ThreadPoolExecutor(4) as pool:
        before = list(pool.map(apart.encode, [TEXTS] * 4))
        os.kill(child(), signal.SIGKILL)
        after = list(pool.map(apart.encode, [TEXTS] * 4))

    for vectors in (*before[1:], *after):
        np.testing.assert_allclose(vectors, before[0], atol=1e-5)


@pytest.mark.timeout(120)
def test_a_process_that_hangs_is_killed_and_another_one_answers(monkeypatch: pytest.MonkeyPatch):
    others = set(multiprocessing.active_children())
    with closing(EncoderProcess(encoder_folder(Settings(data_dir=CACHE)))) as encoder:
        (expected,) = encoder.encode(TEXTS[:1])
        (process,) = set(multiprocessing.active_children()) - others
        hanging = process.pid or 0
        os.kill(hanging, signal.SIGSTOP)
        with monkeypatch.context() as short:
            short.setattr("ragkv.retrieve.encoder.SILENCE_S", 1.0)
            with suppress(Unavailable):  # where another one takes longer than that to load it, too
                encoder.encode(TEXTS[:1])

        np.testing.assert_allclose(encoder.encode(TEXTS[:1])[0], expected, atol=1e-5)
        wait_until(lambda: not is_running(hanging))


@pytest.mark.timeout(120)
def test_closing_ends_a_process_that_hangs():
    others = set(multiprocessing.active_children())
    with closing(EncoderProcess(encoder_folder(Settings(data_dir=CACHE)))) as encoder:
        (process,) = set(multiprocessing.active_children()) - others
        hanging = process.pid or 0
        os.kill(hanging, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(encoder.encode, TEXTS)
            encoder.close()
            assert waiting.exception() is not None
    wait_until(lambda: not is_running(hanging))


def test_it_ends_with_its_parent_however_that_ends():
    program = (
        "import multiprocessing, time; from ragkv.models import encoder_folder;"
        "from ragkv.retrieve.encoder import EncoderProcess; from ragkv.settings import Settings;"
        f"encoder = EncoderProcess(encoder_folder(Settings(data_dir={str(CACHE)!r})));"
        "print(multiprocessing.active_children()[0].pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()

    wait_until(lambda: not is_running(pid))


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path):
    with pytest.raises(Rejected, match="no sentence encoder"):
        EncoderProcess(tmp_path)
