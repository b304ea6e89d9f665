"""The webhooks page: receivers of messages about documents, and the log of messages sent to one of them."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.collections import names_of_collections
from api.admin.shell import AdminRequest, page
from ragkv.service.base.database import Database
from ragkv.service.webhooks.webhooks import list_deliveries, list_webhooks

DELIVERIES_A_PAGE = 25


@get("/webhooks", sync_to_thread=True)
def webhooks_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    webhook: FromQuery[str | None] = None,
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the tenant's webhooks, and the deliveries of one of them, newest first. They are changed at
    /v1/webhooks."""
    tenant_id = request.user.tenant_id
    webhooks = list_webhooks(tenant_id, database)
    webhook_id = webhook or (webhooks[0].id if webhooks else None)
    deliveries = (
        None if webhook_id is None else list_deliveries(tenant_id, webhook_id, DELIVERIES_A_PAGE, cursor, database)
    )
    return page(
        request,
        "webhooks.html",
        webhooks=webhooks,
        collections=names_of_collections(tenant_id, database),
        chosen=webhook_id,
        deliveries=deliveries,
        cursor=cursor,
    )
