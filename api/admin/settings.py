"""The settings page: the effective settings, read-only."""

from litestar import Response, get
from litestar.di import NamedDependency

from api.admin.shell import AdminRequest, page
from ragkv.service.base.shown_settings import shown_settings
from ragkv.service.base.tenancy import CollectionRef
from ragkv.settings import Settings

OF_EVERY_TENANT = frozenset({
    "RAGKV_MODEL", "RAGKV_MAX_MODEL_LEN", "RAGKV_MAX_UPLOAD_BYTES", "RAGKV_MAX_TENANT_BYTES", "RAGKV_REQUESTS_PER_MINUTE",
    "RAGKV_CHUNK_TOKENS", "RAGKV_TOP_K", "RAGKV_HOPS", "RAGKV_MAX_ANSWER_TOKENS", "RAGKV_RECOMPUTE_POLICY",
    "RAGKV_RECOMPUTE_RATIO", "RAGKV_RECOMPUTE_MAX_TOKENS",
})  # fmt: skip
"""Settings shown to every tenant. The others, such as addresses and folders, are shown to the default tenant only."""


@get("/settings")
async def settings_page(
    request: AdminRequest, settings: NamedDependency[Settings], default_collection: NamedDependency[CollectionRef]
) -> Response[str]:
    """Render every setting for the default tenant, and settings of OF_EVERY_TENANT for other tenants."""
    is_owner = request.user.tenant_id == default_collection.tenant_id
    shown = [setting for setting in shown_settings(settings) if is_owner or setting.name in OF_EVERY_TENANT]
    return page(request, "settings.html", settings=shown, is_owner=is_owner)
