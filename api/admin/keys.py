"""The keys page: the tenant's API keys."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.access.caller import KEY_SCOPES
from ragkv.access.keys import list_valid_keys_first, maker_of
from ragkv.ids import utc_now
from ragkv.parts import Parts

KEYS_A_PAGE = 50


@get("/keys", sync_to_thread=True)
def keys_page(
    request: AdminRequest, parts: NamedDependency[Parts], cursor: FromQuery[str | None] = None
) -> Response[str]:
    """Render the tenant's keys: valid ones first, newest first. Keys are created and revoked at /v1/keys."""
    keys = list_valid_keys_first(request.user.tenant_id, KEYS_A_PAGE, cursor, parts.database)
    maker = maker_of(request.user, parts.database, parts.settings.oidc_key_days)
    return page(
        request,
        "keys.html",
        keys=keys,
        cursor=cursor,
        now=utc_now(),
        scopes=KEY_SCOPES,
        maker=maker,
    )
