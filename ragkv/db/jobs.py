"""Statements about jobs, which record what was queued and what became of it."""

from typing import Any

from sqlalchemy import Update, update

from ragkv.db.tables import JobRow, JobStatus

INGEST = "ingest"


def open_jobs(document_id: str, **changes: Any) -> Update:
    """Change the document's unfinished jobs."""
    unfinished = (JobStatus.QUEUED, JobStatus.RUNNING)
    return update(JobRow).where(JobRow.document_id == document_id, JobRow.status.in_(unfinished)).values(**changes)
