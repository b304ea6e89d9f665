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


REREAD = "reread"
"""Stage of a searchable document that waits to be read again, since documents are read otherwise now."""


class JobStatus(StrEnum):
    """Status of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
