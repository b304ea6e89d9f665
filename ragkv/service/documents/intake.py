"""The stores that accepted files go into, and quotas: how many bytes of files and documents a tenant may have."""

from collections.abc import Callable
from dataclasses import dataclass

from ragkv.errors import QuotaExceeded
from ragkv.service.base.database import Database, Session
from ragkv.service.base.file_store import FileStore
from ragkv.service.base.queue import Queue
from ragkv.service.documents.statements import bytes_of_tenant, documents_where, number_of
from ragkv.settings import Settings
from ragkv.text import plural


@dataclass(frozen=True, slots=True)
class Intake:
    """The stores that accepted files go into, within the limits of the settings. index_fingerprint: as of `Parts`;
    models are read for it when it is first needed."""

    database: Database
    files: FileStore
    settings: Settings
    queue: Queue
    index_fingerprint: Callable[[], str]


def check_quota(session: Session, tenant_id: str, num_bytes: int, settings: Settings) -> None:
    """Check a tenant's quotas. Raises QuotaExceeded if a tenant has more bytes of files, or more documents, than the
    settings allow.

    The new document, of `num_bytes`, is among them.
    """
    check_byte_quota(session, tenant_id, num_bytes, settings)
    check_document_quota(session, tenant_id, settings)


def check_byte_quota(session: Session, tenant_id: str, num_bytes: int, settings: Settings) -> None:
    """Raise QuotaExceeded if a tenant has more bytes of files than the settings allow, the new file, of `num_bytes`,
    among them."""
    session.flush()
    most = settings.max_tenant_bytes  # 0 is no limit
    if most and (total := int(session.scalar(bytes_of_tenant(tenant_id)) or 0)) > most:
        raise QuotaExceeded(
            f"the file has {plural(num_bytes, 'byte')}, but only {max(most - total + num_bytes, 0):,} of the tenant's {most:,} "
            "are left: delete documents or files, or raise RAGKV_MAX_TENANT_BYTES"
        )


def check_document_quota(session: Session, tenant_id: str, settings: Settings) -> None:
    """Raise QuotaExceeded if a tenant has more documents than the settings allow, the new ones among them."""
    most = settings.max_tenant_documents
    if most and (session.scalar(number_of(documents_where(tenant_id))) or 0) > most:
        raise QuotaExceeded(
            f"a tenant may have at most {plural(most, 'document')}: delete some, or raise RAGKV_MAX_TENANT_DOCUMENTS"
        )
