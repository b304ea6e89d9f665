"""Indexed documents, their points, and chunks by id, as retrieval reads them from the database."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ragkv.chunk import Chunk, prompt_text
from ragkv.retrieve.index import Point
from ragkv.retrieve.links import TitledChunk
from ragkv.retrieve.names import DocumentNames, Named
from ragkv.service.base.database import Database
from ragkv.service.base.status import outdated
from ragkv.service.base.tables import DocumentRow
from ragkv.service.collections.statements import changes_of
from ragkv.service.documents.chunk_statements import (
    chunks_by_id,
    points_of,
    ready_chunks,
    titles_of,
    to_chunk,
    to_point,
)
from ragkv.service.documents.statements import versions_of_documents
from ragkv.threads import RecentlyUsed

REMEMBERED_COLLECTIONS = 64


class MadeWith(NamedTuple):
    """Names of the models and settings that chunks and vectors are made with, and of the encoder among them."""

    index_fingerprint: str
    encoder_fingerprint: str


class DatabaseSource:
    """Points and chunks as the database holds them at the moment of the call.

    Chunks that were made otherwise than `present` says are there until their document is read again: token ids are then
    those of `encode`, the present tokenizer; a vector of another encoder is left out.
    """

    def __init__(self, database: Database, present: MadeWith, encode: Callable[[list[str]], list[list[int]]]) -> None:
        self._database = database
        self.present = present
        self._encode = encode
        self._remembered = RecentlyUsed[tuple[str, str], _Versions](_Versions, REMEMBERED_COLLECTIONS)

    def indexed_documents(self, tenant_id: str, collection_id: str) -> dict[str, int]:
        """Version by document id. A version changes whenever the document's chunks are written again.

        The same object for as long as none does, which is one row to read. Not to be changed.
        """
        return self._versions_of(tenant_id, collection_id).by_document

    def of_other_encoders(self, tenant_id: str, collection_id: str) -> frozenset[str]:
        """The indexed documents whose vectors another encoder made."""
        return self._versions_of(tenant_id, collection_id).of_other_encoders

    def outdated(self, tenant_id: str, collection_id: str) -> frozenset[str]:
        """The indexed documents whose text is of a file that another has replaced."""
        return self._versions_of(tenant_id, collection_id).outdated

    def named(
        self,
        tenant_id: str,
        collection_id: str,
        terms: Sequence[int],
        limit: int,
        document_ids: frozenset[str] | None = None,
    ) -> list[Named]:
        """For each term the documents whose file's name has it, as of the last `indexed_documents`."""
        versions = self._remembered.of((tenant_id, collection_id))
        with versions.lock:
            return versions.names.named(terms, limit, document_ids)

    def points(self, document_ids: Sequence[str]) -> list[Point]:
        """The points of these documents; those of another encoder have an empty dense vector."""
        rows = self._database.rows_among(lambda ids: points_of(ids, *self.present), document_ids)
        return [to_point(row, of_encoder=of_encoder) for row, of_encoder in rows]

    def ready_chunks(self, tenant_id: str, collection_id: str) -> list[Chunk]:
        """A collection's chunks that have KV, in document order."""
        statement = ready_chunks(tenant_id, collection_id, self.present.index_fingerprint)
        return [to_chunk(row) for row in self._database.scalars(statement)]

    def chunks(self, tenant_id: str, chunk_ids: Sequence[str]) -> list[Chunk]:
        """The tenant's chunks of these ids, in the order asked for; what is gone is left out."""
        rows = self._database.rows_among(partial(chunks_by_id, tenant_id), chunk_ids)
        chunks = {row[0].id: replace(to_chunk(row[0], row.media_type), outdated=outdated(row)) for row in rows}
        present = self.present.index_fingerprint
        otherwise = [chunks[row[0].id] for row in rows if row.index_fingerprint != present]
        encoded = self._encode([prompt_text(chunk.title, chunk.text) for chunk in otherwise]) if otherwise else ()
        for chunk, token_ids in zip(otherwise, encoded, strict=True):
            chunks[chunk.id] = replace(chunk, token_ids=tuple(token_ids))
        return [chunks[chunk_id] for chunk_id in chunk_ids if chunk_id in chunks]

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> list[TitledChunk]:
        """The titles of the collection's chunks, or of those of some documents."""
        titles = partial(titles_of, tenant_id, collection_id)
        rows = (
            self._database.rows(titles()) if document_ids is None else self._database.rows_among(titles, document_ids)
        )
        return [TitledChunk(*row) for row in rows]

    def _versions_of(self, tenant_id: str, collection_id: str) -> "_Versions":
        changes = self._database.row(changes_of(tenant_id, collection_id))
        if changes is None:
            return _Versions()
        versions = self._remembered.of((tenant_id, collection_id))
        with versions.lock:  # of several that find a change, one reads
            if versions.changes == tuple(changes):
                return versions
            documents = versions_of_documents(tenant_id, collection_id, *self.present)
            with self._database.reading() as session:
                changes = session.execute(changes_of(tenant_id, collection_id)).one_or_none()
                generation, marked = changes or (0, 0)
                if (since := versions.since(generation, marked)) is None:
                    versions.update(_Versions(), session.execute(documents).all())
                elif written := session.execute(documents.where(DocumentRow.changed_in > since)).all():
                    versions.update(versions, written)
            versions.changes = generation, marked  # of before: what is committed meanwhile is read again
        return versions


class _Versions:
    """Versions of one collection's documents after `changes`, (generation, marked changes);
    None before they are read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changes: tuple[int, int] | None = None
        self.by_document: dict[str, int] = {}
        self.of_other_encoders: frozenset[str] = frozenset()
        self.outdated: frozenset[str] = frozenset()
        self.names = DocumentNames()
        """To be read under the lock."""

    def update(self, earlier: "_Versions", written: Sequence[tuple[str, int, str, bool, bool, bool]]) -> None:
        """Take over `earlier` with what was written since; in copies, because other threads read those handed out."""
        self.names = earlier.names
        for document_id, _, name, is_indexed, *_ in written:
            self.names.rename(document_id, name if is_indexed else "")
        changed = {row[0] for row in written}
        indexed = [row for row in written if row[3]]
        by_document = dict(earlier.by_document)
        for document_id in changed:
            by_document.pop(document_id, None)
        by_document |= {document_id: version for document_id, version, *_ in indexed}
        self.by_document = earlier.by_document if by_document == earlier.by_document else by_document
        differing = {document_id for document_id, *_, of_encoder, _ in indexed if not of_encoder}
        self.of_other_encoders = (earlier.of_other_encoders - changed) | differing
        self.outdated = (earlier.outdated - changed) | {
            document_id for document_id, *_, replaced in indexed if replaced
        }

    def since(self, generation: int, marked: int) -> int | None:
        """The generation since which all changes are marked;
        None if others are among them: all documents must be read."""
        if self.changes is None:
            return None
        ours, our_marked = self.changes
        return ours if generation > ours and generation - ours == marked - our_marked else None
