"""States of documents and of jobs."""

from enum import StrEnum


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


class JobStatus(StrEnum):
    """Status of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
