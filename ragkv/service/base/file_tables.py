"""Tables of files that were uploaded without a collection, of their later use, and which stored files rows name."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, Select, String, Table, Text, select, union
from sqlalchemy.orm import Mapped, mapped_column

from ragkv.ids import new_id, utc_now
from ragkv.service.base.lists import one_of
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


_NAMES: Mapping[str, Sequence[str]] = {"documents": ("sha256", "earlier_sha256"), "files": ("sha256",)}
"""The columns of tables that name a file."""
_TABLES = tuple(FileRow.metadata.tables[table] for table in _NAMES)


def named_files(tables: Iterable[Table] = _TABLES) -> Select[str, str]:
    """(tenant, SHA-256) of every file that a document or an upload names, each once. tables: those of an older
    schema."""
    columns = [
        (table.c.tenant_id, table.c[name]) for table in tables for name in _NAMES.get(table.name, ()) if name in table.c
    ]
    named = union(*(select(owner, name.label("sha256")).where(name.is_not(None)) for owner, name in columns)).subquery()
    return select(named.c.tenant_id, named.c.sha256).order_by(named.c.tenant_id, named.c.sha256)


def named_files_among(hashes: Sequence[str]) -> Select[str, str]:
    """`named_files`, of these hashes, in any order."""
    columns = [(table.c.tenant_id, table.c[name]) for table in _TABLES for name in _NAMES[table.name]]
    named = union(*(select(owner, name.label("sha256")).where(one_of(name, hashes)) for owner, name in columns))
    return select(*named.subquery().c)
