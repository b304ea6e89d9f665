"""The keys page: the tenant's API keys."""

from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from api.admin.shell import AdminRequest, page
from ragkv.access.keys import list_keys, maker_of
from ragkv.clock import utc_now
from ragkv.parts import Parts
from ragkv.scopes import KEY_SCOPES

KEYS_A_PAGE = 50


@get("/keys", sync_to_thread=True)
def keys_page(
    request: AdminRequest,
    parts: NamedDependency[Parts],
    cursor: Annotated[int, QueryParameter(ge=0)] = 0,
) -> Response[str]:
    """Render the tenant's keys: valid ones first, newest first, from number `cursor` on. Keys are created and revoked
    at /v1/keys."""
    keys = list_keys(request.user.tenant_id, parts.database)
    keys.sort(key=lambda key: (key.revoked_at is None, key.created_at), reverse=True)
    maker = maker_of(request.user, parts.database, parts.settings.oidc_key_days)
    end = cursor + KEYS_A_PAGE
    return page(
        request,
        "keys.html",
        keys=keys[cursor:end],
        cursor=cursor,
        next=end if end < len(keys) else None,
        now=utc_now(),
        scopes=KEY_SCOPES,
        maker=maker,
    )
