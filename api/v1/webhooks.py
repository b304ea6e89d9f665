"""/v1/webhooks: receivers that are notified when a document is ready or failed, for callers with the scope admin."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from api.access.auth import administering
from api.http.errors import json_problems, problems
from api.http.methods import delete, get, post
from api.http.observe import note_made
from api.v1.lists import Limit
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.webhooks.webhooks import (
    DeliveryPage,
    IssuedWebhook,
    WebhookPage,
    delete_webhook,
    list_deliveries,
    list_webhooks,
    make_webhook,
)
from ragkv.settings import Settings


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new webhook."""

    url: Annotated[
        str,
        "Address that messages are sent to by POST: https, unless `RAGKV_WEBHOOK_HOSTS` names its host.",
        Meta(examples=["https://example.com/hooks/ragkv"]),
    ]
    collection: Annotated[
        str | None, "Id or name of the collection whose documents it reports on; null for all of the tenant's."
    ] = None


@post(
    "/",
    "Create a webhook",
    json_problems(
        NOT_FOUND="No such collection.",
        CONFLICT="The tenant has the maximum number of webhooks.",
        UNPROCESSABLE_ENTITY="The URL is not https, or leads to a private address.",
    ),
)
def create(
    data: JSONBody[NewWebhook],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
) -> IssuedWebhook:
    """Create a webhook. The secret that signs its messages is returned only once, in this response."""
    trusted = settings.trusted_webhook_hosts
    issued = make_webhook(caller.tenant_id, data.url, data.collection, trusted, database)
    note_made(request, issued.webhook.id)
    return issued


@get("/", "List webhooks", problems())
def show(caller: NamedDependency[Caller], database: NamedDependency[Database]) -> WebhookPage:
    """List the tenant's webhooks. Secrets are not returned."""
    return WebhookPage(list_webhooks(caller.tenant_id, database), None)


@delete("/{webhook_id:str}", "Delete a webhook", problems(NOT_FOUND="No such webhook."))
def remove(webhook_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]) -> None:
    """Delete a webhook with its log. Messages that are still pending are not sent."""
    delete_webhook(caller.tenant_id, webhook_id, database)


@get(
    "/{webhook_id:str}/deliveries",
    "List a webhook's deliveries",
    problems(NOT_FOUND="No such webhook.", UNPROCESSABLE_ENTITY="Invalid cursor."),
)
def deliveries(
    webhook_id: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> DeliveryPage:
    """List the messages of a webhook, newest first, each with its last attempt."""
    return list_deliveries(caller.tenant_id, webhook_id, limit, cursor, database)


webhooks_router = Router(
    "/v1/webhooks", route_handlers=[create, show, remove, deliveries], guards=[administering], tags=["webhooks"]
)
