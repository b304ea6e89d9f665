"""The worker as a child of `ragkv serve`: Celery's command line in a process that ends with its parent.

python -m workers.child PARENT_PID --app workers.app worker ...
"""

import ctypes
import os
import signal
import sys

from celery.__main__ import main as celery

_PR_SET_PDEATHSIG = 1


def end_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; at once if the parent is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))
    sys.exit(celery())
