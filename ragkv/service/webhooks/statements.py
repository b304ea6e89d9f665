"""Statements about webhooks and their deliveries. A delivery is written in the same transaction as the event that it
reports."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Delete, Select, Update, delete, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from ragkv.ids import new_id, utc_now
from ragkv.service.base.database import has_come, now_of
from ragkv.service.base.lists import one_of
from ragkv.service.base.page import Keys
from ragkv.service.base.status import outdated
from ragkv.service.base.tables import DocumentRow, WebhookDeliveryRow, WebhookRow

DELIVERY_KEYS: Keys = (WebhookDeliveryRow.created_at.expression, WebhookDeliveryRow.id.expression)
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"
READY_EVENT = "document.ready"
FAILED_EVENT = "document.failed"


def announce(session: Session, document_id: str, event: str) -> None:
    """Queue a message about a document, as it now is, to every webhook of its collection or tenant."""
    session.expire_all()
    row = session.get_one(DocumentRow, document_id)
    about = or_(WebhookRow.collection_id.is_(None), WebhookRow.collection_id == row.collection_id)
    mine = select(WebhookRow.id).where(WebhookRow.tenant_id == row.tenant_id, about).order_by(WebhookRow.id)
    webhooks = session.scalars(mine.with_for_update(read=True, key_share=True)).all()  # none is deleted meanwhile
    if not webhooks:
        return
    data = {
        "document_id": row.id,
        "collection_id": row.collection_id,
        "name": row.name,
        "status": row.status,
        "error": row.error,
        "outdated": outdated(row),
        "chunks": row.num_chunks,
        "tokens": row.num_tokens,
    }
    body = msgspec.json.encode({"type": event, "timestamp": utc_now(), "data": data}).decode()
    moment = now_of(session)
    session.add_all(
        WebhookDeliveryRow(
            id=new_id(),
            tenant_id=row.tenant_id,
            webhook_id=webhook_id,
            document_id=row.id,
            event=event,
            body=body,
            next_at=moment,
        )
        for webhook_id in webhooks
    )


def webhooks_of(tenant_id: str) -> Select[WebhookRow]:
    """A tenant's webhooks, oldest first."""
    return select(WebhookRow).where(WebhookRow.tenant_id == tenant_id).order_by(WebhookRow.created_at, WebhookRow.id)


def deliveries_of(webhook_id: str) -> Select[WebhookDeliveryRow]:
    return select(WebhookDeliveryRow).where(WebhookDeliveryRow.webhook_id == webhook_id)


def due_deliveries(
    moment: datetime, longest_wait: timedelta, of_tenant: int, limit: int, *, silent: bool
) -> Select[WebhookDeliveryRow, WebhookRow]:
    """(delivery, its webhook) of messages to be sent now, some of each tenant: all tenants' longest due first, then
    their second. silent: those of webhooks that left a message without a response, in place of the others'."""
    other = aliased(WebhookDeliveryRow)
    unanswered = select(other.webhook_id).where(other.status == PENDING, other.attempts > 0, other.code.is_(None))
    is_silent = WebhookDeliveryRow.webhook_id.in_(unanswered)
    place = func.row_number().over(
        partition_by=WebhookDeliveryRow.tenant_id, order_by=(WebhookDeliveryRow.next_at, WebhookDeliveryRow.id)
    )
    is_due = (WebhookDeliveryRow.status == PENDING, has_come(WebhookDeliveryRow.next_at, moment, longest_wait))
    mine = is_silent if silent else ~is_silent
    ranked = select(WebhookDeliveryRow.id, place.label("place")).where(*is_due, mine).subquery()
    return (
        select(WebhookDeliveryRow, WebhookRow)
        .join(ranked, ranked.c.id == WebhookDeliveryRow.id)
        .join(WebhookRow, WebhookRow.id == WebhookDeliveryRow.webhook_id)
        .where(ranked.c.place <= of_tenant)
        .order_by(ranked.c.place, WebhookDeliveryRow.next_at, WebhookDeliveryRow.id)
        .limit(limit)
    )


def claim_delivery(delivery: WebhookDeliveryRow, until: datetime) -> Update:
    """Keep other workers from a delivery until the moment. Changes no row if one of them was first."""
    unchanged = (WebhookDeliveryRow.status == PENDING, WebhookDeliveryRow.next_at == delivery.next_at)
    return update(WebhookDeliveryRow).where(WebhookDeliveryRow.id == delivery.id, *unchanged).values(next_at=until)


def record_attempt(delivery_id: str, **changes: Any) -> Update:
    counted = WebhookDeliveryRow.attempts + 1
    return (
        update(WebhookDeliveryRow)
        .where(WebhookDeliveryRow.id == delivery_id)
        .values(attempts=counted, attempted_at=utc_now(), **changes)
    )


def forget_deliveries(cutoff: datetime, limit: int) -> Delete:
    """Deliveries from before the cutoff that ended."""
    ended = (WebhookDeliveryRow.status != PENDING, WebhookDeliveryRow.created_at < cutoff)
    old = select(WebhookDeliveryRow.id).where(*ended).order_by(WebhookDeliveryRow.created_at).limit(limit)
    return delete(WebhookDeliveryRow).where(WebhookDeliveryRow.id.in_(old))


def forget_deliveries_about(document_ids: Sequence[str]) -> Delete:
    """Messages about the documents, with their names and errors, sent or not. No message tells of a deletion."""
    return delete(WebhookDeliveryRow).where(one_of(WebhookDeliveryRow.document_id, document_ids))
