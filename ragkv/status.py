"""States of documents and of jobs."""

from enum import StrEnum
from typing import Protocol


class Status(StrEnum):
    """Status of a document. From `searchable` on it answers questions; `ready` means that all its KV is stored."""

    ACCEPTED = "accepted"
    PARSING = "parsing"
    INDEXING = "indexing"
    SEARCHABLE = "searchable"
    READY = "ready"
    FAILED = "failed"


UNREAD = (Status.ACCEPTED, Status.PARSING, Status.INDEXING)
"""No question finds a document in these yet."""
ANSWERING = (Status.SEARCHABLE, Status.READY)
"""Questions find a document in these."""
UNFINISHED = (*UNREAD, Status.SEARCHABLE)
"""A worker takes a document in these; not a searchable one whose KV was evicted."""
FINISHED = (Status.READY, Status.FAILED)

REREAD = "reread"
"""Stage of a searchable document that waits to be read again, since documents are read otherwise now."""


class Replaceable(Protocol):
    """A document's row, or these columns of it."""

    @property
    def is_replaced(self) -> bool: ...
    @property
    def earlier_name(self) -> str | None: ...
    @property
    def status(self) -> Status: ...
    @property
    def error(self) -> str | None: ...


def outdated(document: Replaceable) -> str | None:
    """The reason why a document's text is of an earlier file than its present one; None if it is not."""
    if not document.is_replaced:
        return None
    earlier = f'the earlier file "{document.earlier_name}"' if document.earlier_name else "an earlier file"
    if document.status == Status.FAILED:
        return f"the text is from {earlier}: the new file could not be read: {document.error or 'unknown reason'}"
    return f"the text is from {earlier}: the new file has not been read yet"


class JobStatus(StrEnum):
    """Status of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
