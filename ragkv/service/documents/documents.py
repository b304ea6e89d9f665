"""Documents: accept, show and delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from ragkv.errors import NotFound
from ragkv.ids import new_id
from ragkv.service.base.database import Condition, Database, Session, advisory_lock
from ragkv.service.base.file_store import FileStore, Readable, StoredBytes
from ragkv.service.base.page import row_by_id, view_from
from ragkv.service.base.status import (
    ANSWERING,
    REREAD,
    IngestionError,
    KVEvicted,
    Stage,
    StageDone,
    StageTotal,
    Status,
    outdated,
)
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import CollectionRef, known_collection
from ragkv.service.collections.statements import collection_changed
from ragkv.service.data_sources.statements import move
from ragkv.service.documents.attachment_statements import attached_only_to, is_orphan, orphans_in
from ragkv.service.documents.intake import Intake, check_quota
from ragkv.service.documents.job_statements import INGEST, new_job
from ragkv.service.documents.metadata import Metadata, checked, is_same
from ragkv.service.documents.removal import Removal, forget_answers, remove_documents, uploads_lock
from ragkv.service.documents.requeue import enqueue
from ragkv.service.documents.statements import (
    document_by_id,
    documents_by_hash,
    label,
    locked,
    read_again,
    start_over,
)
from ragkv.service.files.statements import forget_paths_of
from ragkv.text import clean_file_name, plural

_ORPHANS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Accepted:
    """`created` is False when the same bytes were there already; `is_waiting`: to be read once a worker is free."""

    document_id: str
    created: bool
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """The file of a data source that a document is made from: the source's id, and the file's place for people."""

    data_source_id: str
    place: str


class DocumentView(msgspec.Struct, frozen=True, kw_only=True):
    """A document and the progress of its ingestion."""

    id: str
    collection_id: str
    name: Annotated[str, "Name of the document: the file name, unless it was renamed."]
    title: Annotated[str, "Title found in the document; its name if there is none."]
    media_type: Annotated[str, "Media type of the file that the text is from."]
    bytes: Annotated[int, "Size of the file in bytes."]
    status: Annotated[Status, "Status of the document."]
    stage: Stage
    done: StageDone
    total: StageTotal
    chunks: Annotated[int, "Number of chunks."]
    tokens: Annotated[int, "Number of tokens in all chunks."]
    omitted_hidden_words: Annotated[
        int, "Words that the author hid, omitted from the text unless `RAGKV_READ_HIDDEN` is set."
    ]
    omitted_encoded_characters: Annotated[
        int, "Characters of pictures and other files encoded as base64, omitted from the text."
    ]
    error: IngestionError
    metadata: Annotated[Metadata, "Metadata of the document, a JSON object."]
    kv_pinned: Annotated[bool, "Whether the document's KV is pinned: evicted only on request, never to free space."]
    kv_evicted: KVEvicted
    data_source_id: Annotated[
        str | None, "Id of the data source that the document is kept in sync with; null if it was uploaded."
    ]
    origin: Annotated[str | None, "Place of its file in the data source; null if it was uploaded."]
    outdated: Annotated[
        str | None,
        "Reason why the text is from an earlier file than the document's present one, which has not been read yet "
        "or could not be read; otherwise null. Title, media type, chunks, tokens, what was omitted, pages and the file "
        "to download are then those of the earlier file.",
    ]
    created_at: datetime
    updated_at: datetime

    @property
    def left_out(self) -> str:
        """Phrase for what was left out of the text: `12 hidden words left out`. Empty if nothing was."""
        counts = {
            plural(self.omitted_hidden_words, "hidden word"): self.omitted_hidden_words,
            f"{plural(self.omitted_encoded_characters, 'character')} of encoded files": self.omitted_encoded_characters,
        }
        phrase = " and ".join(phrase for phrase, count in counts.items() if count)
        return f"{phrase} left out" if phrase else ""


def accept_document(
    ref: CollectionRef,
    name: str,
    body: Readable,
    intake: Intake,
    metadata: Metadata | None = None,
    origin: Origin | None = None,
) -> Accepted:
    """Store the bytes, insert the document, commit; then queue it.

    Bytes that are there already are the same document: metadata, if some is given, replaces what it has. A document
    that was uploaded too, before or after, is no longer a data source's: it stays when the file there is deleted. Once
    this returns nothing is lost: if the queue is away, the sweep queues the document later. Raises Rejected for an
    empty file and TooLarge for more bytes than a file, or all files of a tenant, may have.
    """
    accepted = store_document(ref, name, body, intake, metadata, origin)
    if accepted.is_waiting:
        enqueue(accepted.document_id, intake.queue)
    return accepted


def store_document(
    ref: CollectionRef,
    name: str,
    body: Readable,
    intake: Intake,
    metadata: Metadata | None = None,
    origin: Origin | None = None,
    *,
    by_path: bool = False,
) -> Accepted:
    """`accept_document` without the queue, for callers that ingest the document themselves.

    by_path: the file may change at its path. Otherwise a document made of files at paths no longer goes with them.
    """
    labels = checked(metadata or {})
    with intake.files.receive(body, intake.settings.max_upload_bytes) as received:
        with intake.database.writing() as session:
            advisory_lock(session, uploads_lock(ref.tenant_id))
            known_collection(session, ref.collection_id)
            # Who tries it again, or works on it, holds its row: `revive` sees what came of that.
            document = session.scalars(locked(documents_by_hash(ref.collection_id, received.sha256))).one_or_none()
            if created := document is None:
                document = insert_document(
                    session, ref, name, received, labels, origin=origin, was_uploaded=origin is None
                )
                check_quota(session, ref.tenant_id, received.num_bytes, intake.settings)
                session.execute(collection_changed(ref.collection_id))
            else:
                was_attachment = document.is_attachment
                document.is_attachment = is_renamed = False
                revive(session, document, intake.index_fingerprint())
                if origin is None:
                    document.data_source_id, document.was_uploaded = None, True
                    if not by_path:
                        session.execute(forget_paths_of(document.id))
                elif was_attachment or document.data_source_id not in (None, origin.data_source_id):
                    is_renamed = move(document, origin.data_source_id, origin.place)
                is_relabelled = bool(labels) and not is_same(labels, document.labels)  # none leaves what there was
                if is_relabelled:
                    relabel(session, document, labels)
                if is_renamed or is_relabelled:
                    session.flush()
                    session.execute(collection_changed(document.collection_id))
            accepted = Accepted(document.id, created, is_waiting(document))
            intake.files.keep(ref.tenant_id, received)
        return accepted


def document_view(tenant_id: str, document_id: str, database: Database) -> DocumentView:
    """The view of a document. Raises NotFound."""
    with database.reading() as session:
        return view_of(find_document(session, tenant_id, document_id))


def document_file(tenant_id: str, document_id: str, database: Database, files: FileStore) -> tuple[Path, str]:
    """(path, name) of the file that a document's text is of, which may be an earlier one than its present file. Raises
    NotFound, also if the file is gone."""
    with database.reading() as session:
        document = find_document(session, tenant_id, document_id)
    if not document.is_replaced:
        return files.find(tenant_id, document.sha256), document.name
    if document.earlier_sha256 is None:
        raise NotFound("the earlier file that the document's text is from no longer exists")
    return files.find(tenant_id, document.earlier_sha256), document.earlier_name or document.name


def delete_document(tenant_id: str, document_id: str, removal: Removal) -> list[str]:
    """Remove vectors, rows, the file, the KV that no other document uses, and kept answers. Works in any state.

    Attachments go after it, unless other mails have them or they were uploaded too. Returns the ids of what is gone.

    Raises NotFound. When the index is away it raises Unavailable and the document stays: delete it again.
    """
    collection_id = document_view(tenant_id, document_id, removal.database).collection_id
    deleted = delete_documents(tenant_id, collection_id, [document_id], removal)
    if document_id not in deleted:
        raise NotFound("the document was deleted in the meantime")
    return deleted


def delete_documents(
    tenant_id: str,
    collection_id: str,
    document_ids: Sequence[str],
    removal: Removal,
    still: Condition | None = None,
) -> list[str]:
    """`delete_document`, of those of a collection's documents that are there and of which `still` holds when they go.

    The index may go away, or the process be killed, once they are gone and before their attachments are: these go with
    the next deletion in the collection, or the sweep.
    """
    removed = remove_documents(tenant_id, collection_id, document_ids, removal, still)
    try:
        return removed + remove_orphans(tenant_id, collection_id, removal)
    finally:
        forget_answers(tenant_id, collection_id, removal)


def remove_orphans(tenant_id: str, collection_id: str, removal: Removal) -> list[str]:
    """Remove documents that came as attachments of mails that are gone, some at a time. Returns their ids."""
    removed = list[str]()
    while orphans := removal.database.scalars(orphans_in(collection_id).limit(_ORPHANS_AT_ONCE)):
        removed += remove_documents(tenant_id, collection_id, orphans, removal, is_orphan())
    return removed


def relabel(session: Session, document: DocumentRow, metadata: Metadata) -> None:
    """Give a document other metadata, and the same changes to documents that came as its attachments alone, on all
    levels. A value there that is not the one that the document had was set by hand, and stays.

    To be called under `uploads_lock`. Raises Rejected for an attachment that would have too much metadata.
    """
    earlier = document.labels
    label(session, document, metadata)
    changed = {key for key in earlier.keys() | metadata.keys() if not _agree(key, earlier, metadata)}
    for attachment in session.scalars(attached_only_to(document.id)).all() if changed else ():
        following = {key for key in changed if _agree(key, attachment.labels, earlier)}
        unchanged = {key: value for key, value in attachment.labels.items() if key not in following}
        relabel(session, attachment, checked(unchanged | {key: metadata[key] for key in following & metadata.keys()}))


def _agree(key: str, one: Metadata, other: Metadata) -> bool:
    """Whether both have the same value at the key, which may be null, or both none."""
    return (key in one) == (key in other) and is_same(one.get(key), other.get(key))


def insert_document(
    session: Session,
    ref: CollectionRef,
    name: str,
    stored: StoredBytes,
    metadata: Metadata,
    *,
    origin: Origin | None = None,
    is_attachment: bool = False,
    was_uploaded: bool = False,
) -> DocumentRow:
    """A document over bytes that are kept, or about to be, and its job. To be queued after the commit;
    `collection_changed` belongs at the end of the transaction."""
    document = DocumentRow(
        id=new_id(),
        tenant_id=ref.tenant_id,
        collection_id=ref.collection_id,
        sha256=stored.sha256,
        name=clean_file_name(name),
        num_bytes=stored.num_bytes,
        data_source_id=None if origin is None else origin.data_source_id,
        origin=None if origin is None else origin.place,
        is_attachment=is_attachment,
        was_uploaded=was_uploaded,
    )
    session.add(document)
    session.flush()
    label(session, document, metadata)
    session.add(new_job(ref.tenant_id, document.id, INGEST))
    session.flush()
    return document


def revive(session: Session, document: DocumentRow, index_fingerprint: str) -> None:
    """A document that failed, or that other models read, gets another chance when it is uploaded again."""
    made_otherwise = document.num_chunks > 0 and document.index_fingerprint != index_fingerprint
    if document.status is Status.FAILED or made_otherwise:
        again = read_again if document.status in ANSWERING else start_over
        session.execute(again(document.id))
        session.add(new_job(document.tenant_id, document.id, INGEST))


def is_waiting(document: "DocumentRow | DocumentView") -> bool:
    """Whether a document is to be read once a worker is free."""
    return document.status is Status.ACCEPTED or document.stage == REREAD


def find_document(session: Session, tenant_id: str, document_id: str, *, lock: bool = False) -> DocumentRow:
    """The row of a document, for the transaction to change alone with `lock`. Raises NotFound."""
    statement = document_by_id(tenant_id, document_id)
    return row_by_id(session, locked(statement) if lock else statement, document_id, "there is no document")[0]


def view_of(row: DocumentRow) -> DocumentView:
    return view_from(
        DocumentView,
        row,
        bytes=row.num_bytes,
        done=row.progress_done,
        total=row.progress_total,
        chunks=row.num_chunks,
        tokens=row.num_tokens,
        omitted_hidden_words=row.hidden_words,
        omitted_encoded_characters=row.encoded_chars,
        metadata=row.labels,
        outdated=outdated(row),
    )
