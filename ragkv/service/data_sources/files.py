"""Files of a data source: listed one by one, and read by key."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ragkv.service.base.file_store import Readable

UNSETTLED = ""
"""The version of a file that may change again unseen: it is read at the next sync, too."""
AWAY = "away"
"""The version of a file that could not be read because something was away: no listing has it."""
MAX_KEY_BYTES = 1024
"""As in S3."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file. `key`: its name below the location; `version` changes when the file does.

    refusal: why it cannot be read, whatever it contains.
    """

    key: str
    version: str
    num_bytes: int
    refusal: str | None = None


class SourceFiles(Protocol):
    """The files of a folder or of a prefix of an object store. Calls raise Unavailable while it is away."""

    @property
    def gap(self) -> str | None:
        """Why the last listing was not whole, though it ended; None if it was."""

    def listed(self) -> Iterator[ListedFile]:
        """All files but hidden ones, in any order."""

    def open(self, key: str) -> AbstractContextManager[Readable]:
        """A file's bytes. Raises NotFound if it is gone, Rejected, also while it is read, if it cannot be read."""

    def exists(self, key: str) -> bool:
        """Whether the file is still there."""


def is_hidden(name: str) -> bool:
    return name.startswith(".")
