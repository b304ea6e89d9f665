"""A process like vLLM's core: with a child, shared memory and a socket, all of which outlive it if it is killed."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from ragkv.threads import end_with_parent


def core(told: Connection) -> None:
    """Tell the child's pid and the names of both files, and live on. It ends with its parent, the child does not."""
    end_with_parent()
    memory = SharedMemory(create=True, size=4096)
    address = Path(tempfile.gettempdir()) / str(uuid.uuid4())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    told.send((child.pid, f"/dev/shm/{memory.name}", str(address)))
    time.sleep(60)


def tell(told: Connection, module: str, *variables: str) -> None:
    """Tell the pid of the process that this is a fork of, whether it had a module at once, and variables."""
    told.send((os.getppid(), module in sys.modules, *map(os.environ.get, variables)))
