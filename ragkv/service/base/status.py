"""States of documents and of jobs."""

from enum import StrEnum
from typing import Annotated, Protocol


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

Stage = Annotated[
    str,
    "Current stage of ingestion: `parse`, `ocr`, `embed` or `prefill`; empty while none is running. A searchable "
    "document in the stage `reread` is waiting to be read again, because documents are now read differently; until "
    "then questions are answered from what was read before.",
]
StageDone = Annotated[int, "Tokens that the current stage has processed; pages in the stage `ocr`."]
StageTotal = Annotated[int, "Tokens that the current stage processes in all; pages in the stage `ocr`."]
IngestionError = Annotated[
    str | None,
    "Reason for the last failure, if the document's `status` is `failed`, if it is waiting for another attempt, or if "
    "it could not be read again and questions are answered from what was read before; otherwise null.",
]
KVEvicted = Annotated[
    bool,
    "Whether some of the document's KV was evicted, or not stored: for lack of space, or by the collection's rule. "
    "It is recomputed when needed.",
]


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


OPEN_JOBS = (JobStatus.QUEUED, JobStatus.RUNNING)
