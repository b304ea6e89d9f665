"""vLLM's V2 model runner with asynchronous scheduling, which every GPU runs: the connector under it, on this CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("marked", ["not long", pytest.param("long", marks=pytest.mark.long)])
def test_the_connector_keeps_its_promises_under_the_runner_of_gpus(marked: str) -> None:
    """The oracle, failed loads, preemption, and requests that end while they are stitched (gpu_runner_cases.py). In a
    process of its own: vLLM's runner is chosen before it is imported."""
    plugins = ["-p", "no:xdist", "-p", "tests.engine.gpu_runner"]
    command = ["-m", "pytest", *plugins, "-m", marked, "tests/engine/gpu_runner_cases.py"]
    ran = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
