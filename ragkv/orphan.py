"""Helper processes end when their parent ends, for whatever reason: a killed service leaves no model in memory."""

import multiprocessing
import os
import signal
import threading
import time
from functools import cache

_LOOK_EVERY_S = 0.5


@cache
def end_with_parent() -> None:
    """Kill this process once its parent is gone. Does nothing in a process that multiprocessing did not start.

    PR_SET_PDEATHSIG would not do: the kernel ties it to the thread that started the process, and vLLM loads in one of a
    pool.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        alive = parent.is_alive()
        threading.Thread(target=_watch, args=(os.getppid() if alive else None,), name="parent", daemon=True).start()


def _watch(parent_pid: int | None) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
