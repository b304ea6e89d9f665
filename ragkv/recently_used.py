"""A cache of the most recently used values, each under its key."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values of the `size` keys used last. Safe to share between threads."""

    def __init__(self, make: Callable[[], V], size: int) -> None:
        self._make = make
        self._size = size
        self._lock = threading.Lock()
        self._values: dict[K, V] = {}

    def of(self, key: K) -> V:
        """The value of a key, made when it is first used."""
        with self._lock:
            value = self._values.pop(key) if key in self._values else self._make()
            self._values[key] = value
            while len(self._values) > self._size:
                del self._values[next(iter(self._values))]
        return value

    def peek(self, key: K) -> V | None:
        """The value of a key that is kept, without using it."""
        with self._lock:
            return self._values.get(key)

    def keys(self) -> list[K]:
        with self._lock:
            return list(self._values)

    def drop(self, key: K) -> None:
        with self._lock:
            self._values.pop(key, None)
