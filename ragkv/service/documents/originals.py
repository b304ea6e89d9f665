"""The uploaded bytes of documents and files, kept as long as a row refers to them."""

from collections.abc import Sequence

from ragkv.service.base.database import Database, advisory_lock
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.file_tables import named_files_among


def uploads_lock(tenant_id: str) -> str:
    """The name of the lock under which a tenant's files come and go, so that sums over them stay true."""
    return f"uploads of {tenant_id}"


def discard_unnamed(tenant_id: str, sha256: str, database: Database, files: FileStore) -> bool:
    """Remove a stored file, unless a row names it. Returns whether it is gone.

    Called after the commit that took the last name away: a crash in between leaves a file that the sweep finds, never a
    row without its file. The lock keeps out an upload of the same bytes.
    """
    return discard_all_unnamed(tenant_id, [sha256], database, files) == 1


def discard_all_unnamed(tenant_id: str, hashes: Sequence[str], database: Database, files: FileStore) -> int:
    """`discard_unnamed` of several files of a tenant. Returns how many are gone."""
    with database.writing() as session:
        advisory_lock(session, uploads_lock(tenant_id))
        named = {sha256 for owner, sha256 in session.execute(named_files_among(hashes)) if owner == tenant_id}
        unnamed = [sha256 for sha256 in hashes if sha256 not in named]
        for sha256 in unnamed:
            files.delete(tenant_id, sha256)
        return len(unnamed)
