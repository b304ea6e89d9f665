"""Ports of this machine for services under test."""

import socket
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives a port that nobody listens on."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find
