"""Vector stores, their files and file batches in OpenAI's format."""

import re
from collections import Counter
from typing import Annotated, Literal, TypeVar

import msgspec
from litestar import Response

from api.openai.fields import Created, ListPage, Outdated, attributes_of
from ragkv.ids import new_id
from ragkv.service.base.status import ANSWERING, UNREAD, Status
from ragkv.service.files.attachments import StoreEntry
from ragkv.service.files.file_batches import BatchProgress
from ragkv.service.files.stores import Store

FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]

POLL_AGAIN = {"openai-poll-after-ms": "500"}
"""A small file is searchable in about a second."""

STATUSES: dict[FileStatus, tuple[Status, ...]] = {
    "in_progress": UNREAD,
    "completed": ANSWERING,
    "failed": (Status.FAILED,),
    "cancelled": (),
}
"""A file is completed once it is searchable, with or without its KV."""

_STATUS: dict[Status, FileStatus] = {status: name for name, statuses in STATUSES.items() for status in statuses}


class FileCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of files by status."""

    in_progress: Annotated[int, "Files waiting for or in ingestion."]
    completed: Annotated[int, "Files that can be searched."]
    failed: Annotated[int, "Files that could not be ingested."]
    cancelled: Annotated[int, "Files of a batch that are no longer attached."]
    total: Annotated[int, "All files."]

    @classmethod
    def of(cls, statuses: Counter[Status], cancelled: int = 0) -> "FileCounts":
        counts = {name: sum(statuses[status] for status in of_it) for name, of_it in STATUSES.items()}
        return cls(**counts | {"cancelled": cancelled}, total=statuses.total() + cancelled)


class VectorStore(msgspec.Struct, frozen=True, kw_only=True):
    """A vector store: a collection of documents."""

    id: str
    name: Annotated[str, "Name of the vector store."]
    created_at: Created
    status: Annotated[
        Literal["in_progress", "completed"], "`in_progress` while files are being ingested, else `completed`."
    ]
    file_counts: Annotated[FileCounts, "Number of files by status."]
    usage_bytes: Annotated[int, "Size of the files in bytes."]
    metadata: Annotated[dict[str, str], "Always empty."] = {}
    object: Literal["vector_store"] = "vector_store"

    @classmethod
    def of(cls, store: Store) -> "VectorStore":
        counts = FileCounts.of(store.statuses)
        return cls(
            id=store.id,
            name=store.name,
            created_at=int(store.created_at.timestamp()),
            status="in_progress" if counts.in_progress else "completed",
            file_counts=counts,
            usage_bytes=store.num_bytes,
        )


class VectorStorePage(ListPage, frozen=True, kw_only=True):
    """A page of vector stores."""

    data: Annotated[list[VectorStore], "Vector stores."]


class VectorStoreDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that a vector store was deleted."""

    id: Annotated[str, "Id of the deleted vector store."]
    object: Literal["vector_store.deleted"] = "vector_store.deleted"
    deleted: Annotated[bool, "Always true."] = True


class LastError(msgspec.Struct, frozen=True):
    """The reason why a file could not be ingested."""

    message: Annotated[str, "Explanation of the failure."]
    code: Literal["invalid_file"] = "invalid_file"


class OtherChunking(msgspec.Struct, frozen=True):
    """Chunking strategy of a file; always `other`. The setting RAGKV_CHUNK_TOKENS determines the size of chunks."""

    type: Annotated[Literal["other"], "Type of the strategy; always `other`."] = "other"


class StoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a vector store, or a document that was uploaded to the collection directly."""

    id: Annotated[str, "Id of the file, or of the document if it was uploaded to the collection directly."]
    created_at: Annotated[int, "Time at which the file was attached, in Unix seconds."]
    vector_store_id: str
    status: Annotated[FileStatus, "Status of the file: `completed` as soon as it can be searched."]
    usage_bytes: Annotated[int, "Size of the file in bytes."]
    last_error: Annotated[LastError | None, "Reason for the failure; null unless `status` is `failed`."]
    attributes: Annotated[dict[str, str | int | float | bool], "Attributes of the file: the metadata of its document."]
    outdated: Outdated = None
    chunking_strategy: Annotated[OtherChunking, "Chunking strategy; always `other`."] = OtherChunking()
    object: Literal["vector_store.file"] = "vector_store.file"

    @classmethod
    def of(cls, entry: StoreEntry) -> "StoreFile":
        document, status = entry.document, _STATUS[entry.document.status]
        return cls(
            id=entry.file_id,
            created_at=int(entry.created_at.timestamp()),
            vector_store_id=document.collection_id,
            status=status,
            usage_bytes=document.bytes,
            last_error=LastError(document.error or "") if status == "failed" else None,
            attributes=attributes_of(document.metadata),
            outdated=document.outdated,
        )


class StoreFilePage(ListPage, frozen=True, kw_only=True):
    """A page of files of a vector store."""

    data: Annotated[list[StoreFile], "Files."]


class StoreFileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that a file was detached from a vector store."""

    id: Annotated[str, "Id of the detached file."]
    object: Literal["vector_store.file.deleted"] = "vector_store.file.deleted"
    deleted: Annotated[bool, "Always true."] = True


class FileBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of files that were attached together."""

    id: str
    created_at: Created
    vector_store_id: str
    status: Annotated[FileStatus, "Status of the batch."]
    file_counts: Annotated[FileCounts, "Number of files by status."]
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"

    @classmethod
    def of(cls, batch: BatchProgress) -> "FileBatch":
        counts = FileCounts.of(batch.statuses, batch.num_missing)
        status: FileStatus = "completed"
        if batch.cancelled:
            status = "cancelled"
        elif counts.in_progress:
            status = "in_progress"
        elif counts.total and counts.failed == counts.total:
            status = "failed"
        return cls(
            id=batch.id,
            created_at=int(batch.created_at.timestamp()),
            vector_store_id=batch.collection_id,
            status=status,
            file_counts=counts,
        )


Polled = TypeVar("Polled", StoreFile, FileBatch)


def polled(view: Polled) -> Response[Polled]:
    """A response that tells OpenAI's clients when to ask again; openai-node waits 5 s otherwise."""
    return Response(view, headers=dict(POLL_AGAIN) if view.status == "in_progress" else {})


def statuses_of(name: FileStatus | None) -> tuple[Status, ...] | None:
    """The document statuses of a file status; None for all."""
    return None if name is None else STATUSES[name]


def generated_name() -> str:
    """A name for a vector store that is made without one."""
    return f"vector store {new_id()[:8]}"


def is_generated(name: str) -> bool:
    return re.fullmatch(r"vector store [0-9a-f]{8}", name) is not None
