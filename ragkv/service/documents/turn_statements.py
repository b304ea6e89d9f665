"""Turns of the queue: which waiting document a worker takes next.

Tenants take turns, the one that was served least recently first. Of its documents those that cannot be searched yet
come before those that only lack KV, each by age. The database decides: a message in the queue only wakes a worker.
"""

from datetime import datetime

from sqlalchemy import Select, Update, exists, select, update
from sqlalchemy.orm import Session

from ragkv.service.base.status import UNREAD, Status
from ragkv.service.base.tables import DocumentRow, TenantRow
from ragkv.service.documents.statements import waiting

BEGUN_FIRST = tuple(reversed(UNREAD))


def next_waiting(session: Session, moment: datetime) -> str | None:
    """The document whose turn it is. On PostgreSQL its row is locked, and rows that are locked are passed over."""
    for tenant_id in session.scalars(tenants_by_turn(moment)).all():
        for status in (*BEGUN_FIRST, Status.SEARCHABLE):
            oldest = oldest_waiting(tenant_id, status, moment).with_for_update(skip_locked=True)
            if (document_id := session.scalar(oldest)) is not None:
                return document_id
    return None


def others_wait(session: Session, tenant_id: str, status: Status, moment: datetime) -> bool:
    """Whether a document waits that comes before more of this tenant's document with that status, which has just been
    served: another tenant's, or one of this tenant's that cannot be searched yet if this one can."""
    tenants = session.scalars(tenants_by_turn(moment)).all()
    unread = BEGUN_FIRST if status not in UNREAD else ()
    mine = (oldest_waiting(tenant_id, earlier, moment) for earlier in unread)
    return any(other != tenant_id for other in tenants) or any(session.scalar(oldest) is not None for oldest in mine)


def tenants_by_turn(moment: datetime) -> Select[str]:
    """Ids of the tenants that have waiting documents, first the one that was served least recently."""
    has_some = exists().where(DocumentRow.tenant_id == TenantRow.id, waiting(moment))
    turns = (TenantRow.served_at.asc().nulls_first(), TenantRow.id)
    return select(TenantRow.id).where(has_some).order_by(*turns)


def oldest_waiting(tenant_id: str, status: Status, moment: datetime) -> Select[str]:
    """The id of a tenant's document with this status that waits and was uploaded first."""
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.status == status)
    return select(DocumentRow.id).where(*mine, waiting(moment)).order_by(DocumentRow.created_at).limit(1)


def served(document_id: str, moment: datetime) -> Update:
    """The document's tenant has had its turn."""
    owner = select(DocumentRow.tenant_id).where(DocumentRow.id == document_id).scalar_subquery()
    return update(TenantRow).where(TenantRow.id == owner).values(served_at=moment)
