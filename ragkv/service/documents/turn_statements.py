"""Turns of the queue: which waiting document a worker takes next.

Documents that cannot be searched yet come before those that only lack KV, or, once the share of KV is due, after them.
Of each kind tenants take turns, the one that was served least recently first, and of a tenant's documents the oldest is
first. The database decides: a message in the queue only wakes a worker.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from sqlalchemy import Select, Update, exists, select, update
from sqlalchemy.orm import Session

from ragkv.service.base.status import UNFINISHED, UNREAD, Status
from ragkv.service.base.tables import DocumentRow, TenantRow
from ragkv.service.documents.statements import waiting

BEGUN_FIRST = tuple(reversed(UNREAD))
LACKS_KV = (Status.SEARCHABLE,)
Kinds = Sequence[Sequence[Status]]
"""Statuses of documents that wait, by kind: the first kind is served first."""


class Others(Enum):
    """Documents that wait and come before more of the one that is worked on: none, some whose KV is missing, or some
    that cannot be searched yet."""

    NONE = "none"
    LACK_KV = "lack_kv"
    UNREAD = "unread"


def next_waiting(session: Session, moment: datetime, kinds: Kinds) -> tuple[str, Status] | None:
    """(id, status) of the document whose turn it is, of the first kind of which any waits. On PostgreSQL its row is
    locked, and rows that are locked are passed over."""
    for kind in kinds:
        for tenant_id in session.scalars(tenants_by_turn(moment, kind)).all():
            for status in kind:
                oldest = oldest_waiting(tenant_id, status, moment).with_for_update(skip_locked=True)
                if (document_id := session.scalar(oldest)) is not None:
                    return document_id, status
    return None


def others_wait(session: Session, tenant_id: str, status: Status, moment: datetime) -> Others:
    """Documents that come before more of this tenant's document with that status: those of the other kind, and of its
    kind those of other tenants."""
    for kind, answer in ((BEGUN_FIRST, Others.UNREAD), (LACKS_KV, Others.LACK_KV)):
        tenants = session.scalars(tenants_by_turn(moment, kind).limit(2)).all()
        if any(status not in kind or waiting_id != tenant_id for waiting_id in tenants):
            return answer
    return Others.NONE


def tenants_by_turn(moment: datetime, kind: Sequence[Status] = UNFINISHED) -> Select[str]:
    """Ids of the tenants that have waiting documents of a kind, first the one that was served least recently."""
    has_some = exists().where(DocumentRow.tenant_id == TenantRow.id, DocumentRow.status.in_(kind), waiting(moment))
    served_at = TenantRow.kv_served_at if kind == LACKS_KV else TenantRow.served_at
    return select(TenantRow.id).where(has_some).order_by(served_at.asc().nulls_first(), TenantRow.id)


def oldest_waiting(tenant_id: str, status: Status, moment: datetime) -> Select[str]:
    """The id of a tenant's document with this status that waits and was uploaded first."""
    mine = (DocumentRow.tenant_id == tenant_id, DocumentRow.status == status)
    return select(DocumentRow.id).where(*mine, waiting(moment)).order_by(DocumentRow.created_at).limit(1)


def served(document_id: str, status: Status, moment: datetime) -> Update:
    """The tenant of a document with this status has had its turn, of that kind."""
    owner = select(DocumentRow.tenant_id).where(DocumentRow.id == document_id).scalar_subquery()
    column = TenantRow.kv_served_at if status in LACKS_KV else TenantRow.served_at
    return update(TenantRow).where(TenantRow.id == owner).values({column: moment})
