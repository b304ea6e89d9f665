"""Injected object store faults, for tests and for your own trials (`RAGKV_KV_REMOTE_FAULTS`)."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from ragkv.errors import Rejected, Unavailable
from ragkv.kv.remote import Remote, StoredObject


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """latency_ms: before each request is answered. errors, short, corrupt: the shares of requests that fail, of objects
    of which only a half comes, and of objects with a byte changed."""

    latency_ms: float = 0.0
    errors: float = 0.0
    short: float = 0.0
    corrupt: float = 0.0

    @classmethod
    def of(cls, text: str) -> "Faults":
        """From `latency_ms=50,errors=0.01`. Raises Rejected."""
        try:
            given = dict(part.strip().split("=") for part in text.split(","))
            faults = msgspec.convert(given, cls, strict=False)
        except (ValueError, msgspec.ValidationError) as error:
            raise Rejected(f"RAGKV_KV_REMOTE_FAULTS: {error}: e.g. latency_ms=50,errors=0.01") from None
        if faults.latency_ms < 0 or not all(0 <= share <= 1 for share in (faults.errors, faults.short, faults.corrupt)):
            raise Rejected("RAGKV_KV_REMOTE_FAULTS: latency_ms must be 0 or more, and shares between 0 and 1")
        return faults


class FaultyRemote:
    """Another object store with faults. `chance`: numbers in [0, 1)."""

    def __init__(self, remote: Remote, faults: Faults, chance: Callable[[], float] = random.random) -> None:
        self._remote = remote
        self._faults = faults
        self._chance = chance

    def fetch(self, key: str, path: Path) -> int:
        self._asked()
        num_bytes = self._remote.fetch(key, path)
        if self._happens(self._faults.short):
            os.truncate(path, num_bytes // 2)
            return num_bytes // 2
        if self._happens(self._faults.corrupt):
            with path.open("r+b") as file:
                file.seek(num_bytes // 2)
                byte = file.read(1)
                file.seek(num_bytes // 2)
                file.write(bytes([byte[0] ^ 1]))
        return num_bytes

    def put(self, key: str, path: Path) -> None:
        self._asked()
        self._remote.put(key, path)

    def has(self, key: str) -> bool:
        self._asked()
        return self._remote.has(key)

    def delete(self, keys: Iterable[str]) -> None:
        self._asked()
        self._remote.delete(keys)

    def objects(self) -> Iterator[StoredObject]:
        self._asked()
        return self._remote.objects()

    def _asked(self) -> None:
        time.sleep(self._faults.latency_ms / 1e3)
        if self._happens(self._faults.errors):
            raise Unavailable("injected fault: the object store answered with an error")

    def _happens(self, share: float) -> bool:
        return self._chance() < share
