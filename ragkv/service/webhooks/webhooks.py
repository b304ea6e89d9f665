"""A tenant's webhooks: create, list, remove, and the log of their deliveries."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ragkv.errors import Conflict
from ragkv.ids import new_id
from ragkv.service.audit.statements import note_deletions
from ragkv.service.base.database import Database, Session, advisory_lock
from ragkv.service.base.page import newest_first, row_by_id, view_from
from ragkv.service.base.tables import WebhookRow
from ragkv.service.base.tenants import collection_ref, hold_collection
from ragkv.service.webhooks.address import target_of
from ragkv.service.webhooks.delivery import new_secret
from ragkv.service.webhooks.statements import DELIVERY_KEYS, PENDING, deliveries_of, webhooks_of

MAX_WEBHOOKS = 20
"""Webhooks of a tenant, at most."""


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook without its secret."""

    id: str
    url: Annotated[str, "Address that messages are sent to."]
    collection_id: Annotated[
        str | None, "Id of the collection whose documents it reports on; null for all of the tenant's."
    ]
    created_at: datetime


class IssuedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook with its secret, which is not shown again."""

    secret: Annotated[str, "Secret that signs the messages, shown only once."]
    webhook: Annotated[WebhookView, "Properties of the webhook."]


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a webhook and its last attempt."""

    id: Annotated[str, "Id of the message, sent as `webhook-id`: the same for every attempt."]
    event: Annotated[str, "Type of the message: `document.ready` or `document.failed`."]
    document_id: Annotated[str, "Id of the document."]
    status: Annotated[
        Literal["pending", "delivered", "failed"],
        "`pending` until it is received, `delivered`, or `failed` after the last attempt.",
    ]
    attempts: Annotated[int, "Number of attempts."]
    code: Annotated[int | None, "Status code of the last response; null if there was none."]
    error: Annotated[str | None, "Reason why the last attempt got no response."]
    created_at: datetime
    attempted_at: Annotated[datetime | None, "Time of the last attempt; null before the first."]
    next_at: Annotated[datetime | None, "Time of the next attempt; null if there is none."]


class WebhookPage(msgspec.Struct, frozen=True):
    """All webhooks: a tenant has no more than one page of them."""

    items: Annotated[list[WebhookView], "Webhooks, oldest first."]
    next: str | None


class DeliveryPage(msgspec.Struct, frozen=True):
    """A page of deliveries, newest first."""

    items: Annotated[list[DeliveryView], "Messages of the webhook, newest first."]
    next: str | None


def make_webhook(
    tenant_id: str, url: str, collection: str | None, trusted: frozenset[str], database: Database
) -> IssuedWebhook:
    """A webhook for one collection, or for all. Raises Rejected for the URL, NotFound for the collection, Conflict."""
    target_of(url, trusted)
    collection_id = None if collection is None else collection_ref(tenant_id, collection, database).collection_id
    row = WebhookRow(id=new_id(), tenant_id=tenant_id, collection_id=collection_id, url=url, secret=new_secret())
    with database.writing() as session:
        advisory_lock(session, f"webhooks {tenant_id}")
        if collection_id is not None:
            hold_collection(session, collection_id)
        if len(session.scalars(webhooks_of(tenant_id)).all()) >= MAX_WEBHOOKS:
            raise Conflict(f"the tenant already has {MAX_WEBHOOKS} webhooks: delete one")
        session.add(row)
    return IssuedWebhook(secret=row.secret, webhook=view_from(WebhookView, row))


def list_webhooks(tenant_id: str, database: Database) -> list[WebhookView]:
    """All webhooks of a tenant, oldest first."""
    return [view_from(WebhookView, row) for row in database.scalars(webhooks_of(tenant_id))]


def delete_webhook(tenant_id: str, webhook_id: str, database: Database) -> None:
    """Remove a webhook, its log, and what was to be sent. Raises NotFound."""
    with database.writing() as session:
        session.delete(_find(session, tenant_id, webhook_id))
        note_deletions(session, WebhookRow, [webhook_id])


def list_deliveries(
    tenant_id: str, webhook_id: str, limit: int, cursor: str | None, database: Database
) -> DeliveryPage:
    """A page of a webhook's deliveries, newest first. Raises NotFound, Rejected for an invalid cursor."""
    with database.reading() as session:
        deliveries = deliveries_of(_find(session, tenant_id, webhook_id).id)
    rows, following = newest_first(database, deliveries, DELIVERY_KEYS, limit, cursor)
    messages = [view_from(DeliveryView, row, next_at=row.next_at if row.status == PENDING else None) for (row,) in rows]
    return DeliveryPage(messages, following)


def _find(session: Session, tenant_id: str, webhook_id: str) -> WebhookRow:
    statement = webhooks_of(tenant_id).where(WebhookRow.id == webhook_id)
    return row_by_id(session, statement, webhook_id, "there is no webhook")[0]
