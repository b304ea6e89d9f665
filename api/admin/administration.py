"""The pages for administrators: the tenant's keys, webhooks and audit log, and the effective settings."""

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.collections import names_of_collections
from api.admin.shell import AdminRequest, page
from ragkv.ids import utc_now
from ragkv.service.audit.log import list_audit
from ragkv.service.audit.statements import AuditFilter
from ragkv.service.base.caller import KEY_SCOPES
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.keys.keys import list_valid_keys_first, maker_of
from ragkv.service.webhooks.webhooks import list_deliveries, list_webhooks
from ragkv.settings import PREFIX, Settings
from ragkv.urls import HIDDEN, without_secrets

KEYS_A_PAGE = 50
DELIVERIES_A_PAGE = 25
EVENTS_A_PAGE = 50
OF_EVERY_TENANT = frozenset({
    "RAGKV_MODEL", "RAGKV_MAX_MODEL_LEN", "RAGKV_MAX_UPLOAD_BYTES", "RAGKV_MAX_TENANT_BYTES", "RAGKV_REQUESTS_PER_MINUTE",
    "RAGKV_CHUNK_TOKENS", "RAGKV_TOP_K", "RAGKV_HOPS", "RAGKV_MAX_ANSWER_TOKENS", "RAGKV_RECOMPUTE_POLICY",
    "RAGKV_RECOMPUTE_RATIO", "RAGKV_RECOMPUTE_MAX_TOKENS",
})  # fmt: skip
"""Settings shown to every tenant. The others, such as addresses and folders, are shown to the default tenant only."""

SECRET_WORDS = frozenset({"key", "password", "secret", "token", "credentials", "headers"})
"""A text setting with one of these words in its name is never shown. Numbers are: days of keys, for one."""


@get("/keys", sync_to_thread=True)
def keys_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the tenant's keys: valid ones first, newest first. Keys are created and revoked at /v1/keys."""
    keys = list_valid_keys_first(request.user.tenant_id, KEYS_A_PAGE, cursor, database)
    maker = maker_of(request.user, database, settings.oidc_key_days)
    return page(
        request,
        "keys.html",
        keys=keys,
        cursor=cursor,
        now=utc_now(),
        scopes=KEY_SCOPES,
        maker=maker,
    )


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
        collections=names_of_collections(tenant_id, (webhook.collection_id for webhook in webhooks), database),
        chosen=webhook_id,
        deliveries=deliveries,
        cursor=cursor,
    )


@get("/audit", sync_to_thread=True)
def audit_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    resource: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the tenant's audit log, newest first, all of it or what was done to one resource."""
    criteria = AuditFilter(request.user.tenant_id, resource.strip() or None)
    events = list_audit(criteria, EVENTS_A_PAGE, cursor, database)
    return page(request, "audit.html", events=events, resource=resource.strip(), cursor=cursor)


@get("/settings")
async def settings_page(
    request: AdminRequest, settings: NamedDependency[Settings], default_collection: NamedDependency[CollectionRef]
) -> Response[str]:
    """Render every setting for the default tenant, and settings of OF_EVERY_TENANT for other tenants."""
    is_owner = request.user.tenant_id == default_collection.tenant_id
    shown = [setting for setting in shown_settings(settings) if is_owner or setting.name in OF_EVERY_TENANT]
    return page(request, "settings.html", settings=shown, is_owner=is_owner)


class ShownSetting(msgspec.Struct, frozen=True):
    """A setting by the name of its variable. `value` as text; None if it is not set."""

    name: str
    value: str | None
    is_default: bool


def shown_settings(settings: Settings) -> list[ShownSetting]:
    """Every setting, in the order in which they are declared."""
    shown = []
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        text = None if value is None else str(value)
        if isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, str):
            text = HIDDEN if SECRET_WORDS & set(field.name.split("_")) else without_secrets(value)
        shown.append(ShownSetting(f"{PREFIX}{field.name.upper()}", text, value == field.default))
    return shown
