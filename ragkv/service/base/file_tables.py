"""Tables of files that were uploaded without a collection, and of their later use."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ragkv.ids import new_id, utc_now
from ragkv.service.base.table_base import ID, Base


class FileRow(Base):
    """Bytes of a tenant with a name. They lie in the same store as those of documents: equal bytes are there once."""

    __tablename__ = "files"
    __table_args__ = (Index(None, "tenant_id", "created_at"), Index(None, "tenant_id", "sha256"))

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    sha256: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(Text)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    purpose: Mapped[str] = mapped_column(String(20))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class AttachmentRow(Base):
    """A file is in a collection, as this document. Files with equal bytes are the same document there."""

    __tablename__ = "attachments"

    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True)
    file_id: Mapped[str] = mapped_column(ForeignKey("files.id", ondelete="CASCADE"), primary_key=True, index=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class IngestedPathRow(Base):
    """A document was made of the file at a path, on the command line. path_sha256: of the absolute path."""

    __tablename__ = "ingested_paths"

    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True)
    path_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    document_id: Mapped[str] = mapped_column(ForeignKey("documents.id", ondelete="CASCADE"), index=True)


class FileBatchRow(Base):
    """Files that were attached to a collection together."""

    __tablename__ = "file_batches"

    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    collection_id: Mapped[str] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"), index=True)
    cancelled: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class FileBatchMemberRow(Base):
    """A file of a batch, also after it left the collection."""

    __tablename__ = "file_batch_members"

    batch_id: Mapped[str] = mapped_column(ForeignKey("file_batches.id", ondelete="CASCADE"), primary_key=True)
    file_id: Mapped[str] = mapped_column(ForeignKey("files.id", ondelete="CASCADE"), primary_key=True, index=True)
