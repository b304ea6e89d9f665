"""The settings page: the effective settings, read-only."""

from typing import Any

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from api.admin.shell import AdminRequest, page
from ragkv.service.base.tenants import CollectionRef
from ragkv.settings import PREFIX, Settings
from ragkv.urls import HIDDEN, without_secrets

OF_EVERY_TENANT = frozenset({
    "RAGKV_MODEL", "RAGKV_MAX_MODEL_LEN", "RAGKV_MAX_UPLOAD_BYTES", "RAGKV_MAX_TENANT_BYTES", "RAGKV_REQUESTS_PER_MINUTE",
    "RAGKV_CHUNK_TOKENS", "RAGKV_TOP_K", "RAGKV_HOPS", "RAGKV_MAX_ANSWER_TOKENS", "RAGKV_RECOMPUTE_POLICY",
    "RAGKV_RECOMPUTE_RATIO", "RAGKV_RECOMPUTE_MAX_TOKENS",
})  # fmt: skip
"""Settings shown to every tenant. The others, such as addresses and folders, are shown to the default tenant only."""

SECRET_WORDS = frozenset({"key", "password", "secret", "token", "credentials", "headers"})
"""A text setting with one of these words in its name is never shown. Numbers are: days of keys, for one."""


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
    values = [(field, getattr(settings, field.name)) for field in msgspec.structs.fields(settings)]
    return [
        ShownSetting(f"{PREFIX}{field.name.upper()}", _text(field.name, value), value == field.default)
        for field, value in values
    ]


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    return HIDDEN if SECRET_WORDS & set(name.split("_")) else without_secrets(value)
