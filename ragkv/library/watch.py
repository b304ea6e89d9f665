"""What happens to documents while somebody looks on."""

from datetime import datetime, timedelta

import msgspec

from ragkv.db.base import utc_now
from ragkv.db.database import Database
from ragkv.db.documents import changed_since
from ragkv.db.tables import Status
from ragkv.library.documents import DocumentView, view_of

FINISHED = frozenset({Status.READY, Status.FAILED})
MARGIN = timedelta(seconds=5)
"""Clocks of workers may differ by this much, and a commit may come this much after its moment."""


class DocumentProgress(msgspec.Struct, frozen=True):
    """How far a document has come: `done` of `total` tokens of the stage parse, embed or prefill.

    `kv_evicted`: it is searchable and stays so, until its KV is asked for again.
    """

    id: str
    name: str
    status: Status
    stage: str
    done: int
    total: int
    error: str | None
    kv_evicted: bool = False

    @classmethod
    def of(cls, view: DocumentView) -> "DocumentProgress":
        return cls(view.id, view.name, view.status, view.stage, view.done, view.total, view.error, view.kv_evicted)

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED or self.kv_evicted


class _Sight(msgspec.Struct, frozen=True):
    """What one look saw. A document that ended as it had ended before, between two looks, did so at another moment."""

    progress: DocumentProgress
    ended_at: datetime | None

    @classmethod
    def of(cls, view: DocumentView) -> "_Sight":
        progress = DocumentProgress.of(view)
        return cls(progress, view.updated_at if progress.is_finished else None)


class CollectionWatch:
    """One look after the other at one collection. A deleted document is not mentioned again."""

    def __init__(self, database: Database, collection_id: str) -> None:
        self._database = database
        self._collection_id = collection_id
        self._since = utc_now()
        self._seen: dict[str, _Sight] = {}

    def look(self) -> list[DocumentProgress]:
        """What changed since the last look; at the first, every document that is not finished."""
        now = utc_now()
        with self._database.reading() as session:
            rows = session.scalars(changed_since(self._collection_id, self._since))
            found = {row.id: _Sight.of(view_of(row)) for row in rows}
        news = [sight.progress for document_id, sight in found.items() if self._seen.get(document_id) != sight]
        self._seen, self._since = found, now - MARGIN
        return news

    @property
    def is_idle(self) -> bool:
        """Whether the last look saw no document that is not finished."""
        return all(sight.progress.is_finished for sight in self._seen.values())
