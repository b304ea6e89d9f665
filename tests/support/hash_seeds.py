"""Results in other processes, whose sets have other orders."""

import os
import subprocess
import sys
from pathlib import Path

SEEDS = ("0", "1")


def results_by_seed(module: str, expression: str) -> set[str]:
    """The different values of an expression over the names of a module, as processes with different hash seeds print
    them."""
    code = f"from {module} import *; print({expression})"
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        for seed in SEEDS
    }
