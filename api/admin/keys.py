"""The keys page: the tenant's API keys."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.ids import utc_now
from ragkv.service.base.caller import KEY_SCOPES
from ragkv.service.base.database import Database
from ragkv.service.keys.keys import list_valid_keys_first, maker_of
from ragkv.settings import Settings

KEYS_A_PAGE = 50


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
