"""A pytest plugin: engines run vLLM's V2 model runner with asynchronous scheduling, as on every GPU, on this CPU.

    python -m pytest -p no:xdist -p tests.engine.gpu_runner tests/engine/test_under_way.py

The runner's Triton kernels are interpreted: some tenths of a second a step. Loaded before anything imports vLLM.
"""

import os
import runpy
from pathlib import Path

FOLDER = Path(__file__).with_name("as_on_gpus")
os.environ.update(VLLM_USE_V2_MODEL_RUNNER="1", TRITON_INTERPRET="1", PYTHONPATH=str(FOLDER))
runpy.run_path(str(FOLDER / "sitecustomize.py"))
