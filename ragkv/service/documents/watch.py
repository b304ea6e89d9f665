"""Watches the progress of documents: each poll returns what changed since the last."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

import msgspec

from ragkv.errors import NotFound
from ragkv.service.base.database import Database, now_of
from ragkv.service.base.status import FINISHED, IngestionError, KVEvicted, Stage, StageDone, StageTotal, Status
from ragkv.service.base.tables import CollectionRow
from ragkv.service.documents.statements import PROGRESS, document_by_id, progress_in_collection

MARGIN = timedelta(seconds=5)
"""A commit may come this much after its moment. Workers take that from the database's clock; those of processes that
change documents otherwise may differ from it by this much."""
WHOLE_EVERY = timedelta(seconds=5)
"""How often all unfinished documents are read, not only what changed: those that were deleted are forgotten then."""


class DocumentProgress(msgspec.Struct, frozen=True):
    """The progress of a document's ingestion."""

    id: Annotated[str, "Id of the document."]
    name: Annotated[str, "Name of the document."]
    status: Annotated[Status, "Status of the document."]
    stage: Stage
    done: StageDone
    total: StageTotal
    error: IngestionError
    kv_evicted: KVEvicted = False

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED or self.kv_evicted


class Watch(Protocol):
    """Looks at one thing. Not safe for several threads at once."""

    def look(self) -> list[DocumentProgress]:
        """Read the changes since the last look; the first returns what `state` does.
        Raises NotFound once it is gone."""
        ...

    def state(self) -> list[DocumentProgress]:
        """The unfinished documents of the last look, for a client that joins later."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether the last look saw no document that is not finished."""
        ...


class _Sight(msgspec.Struct, frozen=True):
    """A document as one look saw it. `ended_at` tells two ends apart that fall between two looks."""

    progress: DocumentProgress
    ended_at: datetime | None


class CollectionWatch:
    """Looks at the documents of a collection. A deleted document is not mentioned again."""

    def __init__(self, database: Database, collection_id: str) -> None:
        self._database = database
        self._collection_id = collection_id
        self._looked_at: datetime | None = None
        self._whole_at: datetime | None = None
        self._seen: dict[str, _Sight] = {}

    def look(self) -> list[DocumentProgress]:
        with self._database.reading() as session:
            moment = now_of(session)
            whole = self._whole_at is None or moment < self._whole_at or moment - self._whole_at >= WHOLE_EVERY
            if whole and session.get(CollectionRow, self._collection_id) is None:
                raise NotFound("the collection was deleted")
            since = (self._looked_at or moment) - MARGIN
            rows = session.execute(progress_in_collection(self._collection_id, since, unfinished_too=whole))
            sights = {row[0]: _sight(row) for row in rows}
        news = [sight.progress for document_id, sight in sights.items() if self._seen.get(document_id) != sight]
        self._seen = sights if whole else self._unfinished() | sights
        self._looked_at = moment
        self._whole_at = moment if whole else self._whole_at
        return news

    def state(self) -> list[DocumentProgress]:
        return [sight.progress for sight in self._unfinished().values()]

    @property
    def is_idle(self) -> bool:
        return not self._unfinished()

    def _unfinished(self) -> dict[str, _Sight]:
        return {name: sight for name, sight in self._seen.items() if not sight.progress.is_finished}


class DocumentWatch:
    """Looks at one document."""

    def __init__(self, database: Database, document_id: str, tenant_id: str) -> None:
        self._database = database
        self._ids = (tenant_id, document_id)
        self._seen: DocumentProgress | None = None

    def look(self) -> list[DocumentProgress]:
        row = self._database.row(document_by_id(*self._ids).with_only_columns(*PROGRESS))
        if row is None:
            raise NotFound("the document was deleted")
        earlier, self._seen = self._seen, _sight(row).progress
        return [] if earlier == self._seen else [self._seen]

    def state(self) -> list[DocumentProgress]:
        return [self._seen] if self._seen else []

    @property
    def is_idle(self) -> bool:
        return self._seen is not None and self._seen.is_finished


def _sight(row: Sequence[Any]) -> _Sight:
    *facts, updated_at = row
    progress = DocumentProgress(*facts)
    return _Sight(progress, updated_at if progress.is_finished else None)
