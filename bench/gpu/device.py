"""The GPU as reported by NVIDIA's own tool: unlike a CUDA context in this process, a query takes none of its memory."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_TOOL = "nvidia-smi"


@dataclass(frozen=True, slots=True)
class Gpu:
    """The first GPU of the machine, sizes in GiB."""

    name: str
    driver: str
    total_gib: float
    used_gib: float


def first_gpu() -> Gpu | None:
    """None where there is no NVIDIA GPU, or no driver for it."""
    tool = shutil.which(_TOOL)
    if tool is None:
        return None
    fields = "--query-gpu=name,driver_version,memory.total,memory.used"
    completed = subprocess.run(  # noqa: S603 - no input of a user
        [tool, "--id=0", fields, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        return None
    name, driver, total, used = completed.stdout.strip().rsplit(", ", 3)
    return Gpu(name, driver, float(total) / 1024, float(used) / 1024)


def resident_gib(pid: int) -> float:
    """Host memory of a process, in GiB; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 2**20 for line in lines if line.startswith("VmRSS:")), 0.0)
