"""An object store whose objects arrive damaged, or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragkv.errors import Unavailable
from ragkv.kv.remote import ObjectStore


class FaultyRemote:
    """Another object store, to whose objects `damage` happens when they are loaded."""

    def __init__(self, remote: ObjectStore, damage: Callable[[Path], object]) -> None:
        self._remote = remote
        self._damage = damage

    def fetch(self, key: str, path: Path) -> int:
        num_bytes = self._remote.fetch(key, path)
        self._damage(path)
        return num_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote, name)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def corrupt(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fail(_: Path) -> None:
    raise Unavailable("the object store answered with an error")
