"""The uploaded bytes behind documents and files, kept as long as a row names them."""

from ragkv.db.database import hold
from ragkv.db.documents import uses_of_file
from ragkv.parts import Parts


def uploads_of(tenant_id: str) -> str:
    """The name of the lock under which a tenant's files come and go, so that sums over them stay true."""
    return f"uploads of {tenant_id}"


def discard_unnamed(tenant_id: str, sha256: str, parts: Parts) -> bool:
    """Remove a stored file, unless a row names it. Returns whether it is gone.

    Called after the commit that took the last name away: a crash in between leaves a file that the sweep finds, never a
    row without its file. The lock keeps out an upload of the same bytes.
    """
    with parts.database.writing() as session:
        hold(session, uploads_of(tenant_id))
        if session.scalar(uses_of_file(tenant_id, sha256)):
            return False
        parts.files.delete(tenant_id, sha256)
        return True
