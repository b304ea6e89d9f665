"""An engine started for one command and stopped at its end."""

import logging
import os
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

from ragkv.service.parts import Parts

_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore"}


@asynccontextmanager
async def running_engine(parts: Parts, console: Console) -> AsyncIterator[None]:
    """Prepare the models, start the engine with a message, and stop it at the end."""
    # A command prints only its answer: the logs of libraries and of vLLM's processes are silenced.
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")
    for name in ("vllm", "transformers", "sentence_transformers", "torch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with console.status("preparing the models"):
        parts.prepare()
    try:
        with console.status("starting vLLM (about 40 seconds on a CPU)"):
            await parts.engine.start()
        yield
    finally:
        await parts.engine.stop()
