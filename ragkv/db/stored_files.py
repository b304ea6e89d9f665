"""Statements about the stored files that rows refer to, for all tenants."""

from collections.abc import Sequence

from sqlalchemy import Select, select, union

from ragkv.db.file_tables import FileRow
from ragkv.db.lists import one_of
from ragkv.db.tables import DocumentRow


def named_files() -> Select[str, str]:
    """(tenant, SHA-256) of every file that a document or an upload names, each once."""
    named = union(*(select(kind.tenant_id, kind.sha256) for kind in (DocumentRow, FileRow))).subquery()
    return select(named.c.tenant_id, named.c.sha256).order_by(named.c.tenant_id, named.c.sha256)


def named_files_among(hashes: Sequence[str]) -> Select[str, str]:
    """`named_files`, of these hashes, in any order."""
    kinds = (DocumentRow, FileRow)
    named = union(*(select(k.tenant_id, k.sha256).where(one_of(k.sha256, hashes)) for k in kinds)).subquery()
    return select(named.c.tenant_id, named.c.sha256)
