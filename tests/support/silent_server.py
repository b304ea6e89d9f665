"""A server that takes connections and says nothing."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SilentServer:
    """Listens on a port of this machine."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.port = int(listener.getsockname()[1])

    def connections(self) -> int:
        """How many were made since the last look, which closes them."""
        made = 0
        with suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()
                made += 1
        return made


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield SilentServer(listener)
