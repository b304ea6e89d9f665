"""Statements about the stored files that rows refer to, for all tenants."""

from collections.abc import Sequence

from sqlalchemy import Select, select, union

from ragkv.db.file_tables import FileRow
from ragkv.db.lists import one_of
from ragkv.db.tables import DocumentRow

_NAMES = (
    (DocumentRow.tenant_id, DocumentRow.sha256),
    (DocumentRow.tenant_id, DocumentRow.earlier_sha256),
    (FileRow.tenant_id, FileRow.sha256),
)


def named_files() -> Select[str, str]:
    """(tenant, SHA-256) of every file that a document or an upload names, each once."""
    named = union(*(select(owner, name.label("sha256")).where(name.is_not(None)) for owner, name in _NAMES)).subquery()
    return select(named.c.tenant_id, named.c.sha256).order_by(named.c.tenant_id, named.c.sha256)


def named_files_among(hashes: Sequence[str]) -> Select[str, str]:
    """`named_files`, of these hashes, in any order."""
    named = union(
        *(select(owner, name.label("sha256")).where(one_of(name, hashes)) for owner, name in _NAMES)
    ).subquery()
    return select(named.c.tenant_id, named.c.sha256)
