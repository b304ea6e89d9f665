"""The object store behind the KV folder, if one is configured (`RAGKV_KV_REMOTE`).

An object is a KV file, byte for byte, named like it: `<key[:2]>/<key>.safetensors` under the URL's prefix. A marker at
the prefix's root says whose KV lies there; a bucket without it, or with another's, is not used. Nor is one that
has lost it: a share that is not mounted, and some failing stores, answer that nothing is there.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from ragkv.errors import Corrupt, NotFound, Rejected, Unavailable
from ragkv.ids import batched
from ragkv.object_store import SILENCE, TIMEOUT, StoreLocation, opened, told_of

MARKER = "ragkv-kv.json"
FORMAT = 1
PIECE_BYTES = 8 * 2**20
WHOLE_BYTES = 64 * 2**20
"""Larger files are uploaded in parts of this size."""
FAILURES, PAUSE_S = 3, 5.0
"""Failures in a row after which requests pause, and the seconds of the pause: they fail at once meanwhile. Then one
request at a time goes on, until one succeeds."""

_OBJECT = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})\.safetensors")


class StoredObject(NamedTuple):
    """One KV file in the object store."""

    key: str
    num_bytes: int
    modified: datetime


class _Marker(msgspec.Struct, frozen=True):
    """The content of the marker. service: whose KV it is."""

    format: int
    service: str


class ObjectStore:
    """KV files under one URL, by key. One per process, for any number of threads. Every call blocks, and raises
    Unavailable when the store is away, refuses the credentials or is not this service's."""

    def __init__(
        self, place: StoreLocation, service: Callable[[], str], was_used: Callable[[], bool] = lambda: False
    ) -> None:
        """service: a name of this service that never changes. was_used: whether KV was uploaded before, as recorded
        elsewhere: a place without a marker is not a new one then. Raises Rejected for a URL that names no object store.
        """
        try:
            self._store, self._uploads = opened(place), opened(place, TIMEOUT)
        except Rejected as refusal:
            raise Rejected(f"RAGKV_KV_REMOTE: {refusal}") from None
        self._service = service
        self._was_used = was_used
        self._marked = False
        self._lock = threading.Lock()
        self._failures = 0
        self._trouble = ""
        self._paused_until = 0.0

    def fetch(self, key: str, path: Path) -> int:
        """Write the object to a file. Returns its bytes.

        Raises NotFound if there is none, Corrupt if fewer bytes came than there are, OSError for the file.
        """
        if not self._has_marker():
            raise Unavailable("the object store holds no KV of this service yet")
        with self._asking():
            try:
                response = obstore.get(self._store, _name(key))
            except FileNotFoundError:
                self._check_miss()
                raise NotFound(f"no object of KV key {key}") from None
            expected, pieces = response.meta["size"], iter(response.stream(PIECE_BYTES))
        written = 0
        with path.open("wb") as file:
            while piece := self._next(pieces):
                written += file.write(piece)
        if written != expected:
            raise Corrupt(f"object of KV key {key}: {written:,} of {expected:,} bytes arrived")
        return written

    def put(self, key: str, path: Path) -> None:
        """Upload a file. Raises FileNotFoundError if it is gone, OSError if it cannot be read."""
        self._marked = False  # a share may have been unmounted: what is written into its mount point would be lost
        self._claim()
        with path.open("rb") as file, self._asking((BaseError, ValueError)):  # an OSError is the file's
            try:
                obstore.put(self._uploads, _name(key), file, chunk_size=WHOLE_BYTES)
            except FileNotFoundError as error:  # the bucket is gone, not the file
                raise BaseError(str(error)) from None

    def has(self, key: str) -> bool:
        """Whether there is an object."""
        if not self._has_marker():
            return False
        with self._asking():
            try:
                obstore.head(self._store, _name(key))
            except FileNotFoundError:
                self._check_miss()
                return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, whether they are there or not."""
        if not self._has_marker():
            return
        for batch in batched(list(keys)):
            names = [_name(key) for key in batch]
            with self._asking():
                try:
                    obstore.delete(self._store, names)
                except FileNotFoundError:  # some providers say so, and leave the rest undone
                    for name in names:
                        with suppress(FileNotFoundError):
                            obstore.delete(self._store, name)

    def objects(self) -> Iterator[StoredObject]:
        """All KV files there are."""
        if not self._has_marker():
            return
        with self._asking():
            listed = iter(obstore.list(self._store, chunk_size=1000))
        while listing := self._next(listed):
            for entry in listing:
                if name := _OBJECT.fullmatch(entry["path"]):
                    yield StoredObject(name[1], entry["size"], entry["last_modified"])

    def _next(self, pieces: Iterator[Any]) -> Any:
        with self._asking():
            return next(pieces, None)

    def _claim(self) -> None:
        """Write the marker if there is none and nothing else."""
        if self._has_marker():
            return
        if self._was_used():
            raise self._gone()
        with self._asking():
            strangers = next(iter(obstore.list(self._store, chunk_size=1)), None)
        if strangers:
            raise self._refused(
                f"there are other objects here, such as {strangers[0]['path'][:80]!r}: name an empty prefix"
            )
        marker = msgspec.json.encode(_Marker(FORMAT, self._service()))
        with self._asking(), suppress(AlreadyExistsError):  # another process may be as quick
            obstore.put(self._store, MARKER, marker, mode="create")
        if not self._has_marker():
            raise Unavailable("the object store does not return what was written to it")

    def _check_miss(self) -> None:
        """Look for the marker after a miss. Raises Unavailable if it is gone too: the miss says nothing then."""
        self._marked = False
        if not self._has_marker():
            raise self._gone()

    def _has_marker(self) -> bool:
        """Whether anything was uploaded. Raises Unavailable for another service's place."""
        if self._marked:
            return True
        with self._asking():
            try:
                content = bytes(obstore.get(self._store, MARKER).bytes())
            except FileNotFoundError:
                return False
        try:
            marker = msgspec.json.decode(content, type=_Marker)
        except msgspec.DecodeError:
            raise self._refused(f"{MARKER} here is not ragkv's: name another prefix") from None
        if marker.format != FORMAT:
            raise self._refused("another version of ragkv keeps KV here: name another prefix")
        if marker.service != self._service():
            raise self._refused("another service keeps its KV here: name another prefix")
        self._marked = True
        return True

    @contextmanager
    def _asking(self, errors: tuple[type[Exception], ...] = (BaseError, ValueError, OSError)) -> Iterator[None]:
        """Errors of the store as Unavailable. Nothing is asked for a while after several in a row."""
        with self._lock:
            moment = time.monotonic()
            if moment < self._paused_until:
                raise Unavailable(self._trouble)
            if self._failures >= FAILURES:
                self._paused_until = moment + SILENCE.total_seconds()
        try:
            yield
        except (NotFound, FileNotFoundError):
            self._succeeded()
            raise
        except errors as error:
            with self._lock:
                self._failures += 1
                self._trouble = told_of(error)
                if self._failures >= FAILURES:
                    self._paused_until = time.monotonic() + PAUSE_S
            raise Unavailable(self._trouble) from None
        self._succeeded()

    def _succeeded(self) -> None:
        with self._lock:
            self._failures, self._paused_until = 0, 0.0

    def _gone(self) -> Unavailable:
        return self._refused(
            f"{MARKER}, which was written with the first KV, is not there: mount the share, or name the place that has "
            "it; if its KV is gone for good, run ragkv fsck --repair"
        )

    def _refused(self, why: str) -> Unavailable:
        """The error for a place that cannot be used, which is not looked at again for a while."""
        with self._lock:
            self._trouble = f"RAGKV_KV_REMOTE: {why}"
            self._paused_until = time.monotonic() + PAUSE_S
        return Unavailable(self._trouble)


def _name(key: str) -> str:
    return f"{key[:2]}/{key}.safetensors"
