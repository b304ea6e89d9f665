"""/v1/keys: a tenant's API keys, for callers with the scope admin."""

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
from ragkv.service.base.caller import Caller, KeyScope
from ragkv.service.base.database import Database
from ragkv.service.keys.keys import MAX_DAYS, SCOPES, IssuedKey, KeyPage, issue_key, list_keys, maker_of, revoke_key
from ragkv.settings import Settings


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new API key."""

    name: Annotated[str, "Name of the key, shown in lists.", Meta(examples=["indexing job"])]
    scopes: Annotated[tuple[KeyScope, ...], SCOPES, Meta(examples=[["read", "write"]])] = ("read",)
    days: (
        Annotated[
            int,
            "Lifetime in days; null for no expiry or, where keys must expire, for the longest lifetime.",
            Meta(ge=1, le=MAX_DAYS, examples=[90]),
        ]
        | None
    ) = None


@post("/", "Create an API key", json_problems(UNPROCESSABLE_ENTITY="Invalid name, scopes or lifetime."))
def create(
    data: JSONBody[NewKey],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
) -> IssuedKey:
    """Create an API key. The key itself is returned only once, in this response.

    A key created by a person who signed in expires within `RAGKV_OIDC_KEY_DAYS`, and a key created with such a key
    expires no later than it does.
    """
    maker = maker_of(caller, database, settings.oidc_key_days)
    issued = issue_key(caller.tenant_id, data.name, data.scopes, database, data.days, maker)
    note_made(request, issued.view.id)
    return issued


@get("/", "List API keys", problems(UNPROCESSABLE_ENTITY="Invalid cursor."))
def show(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> KeyPage:
    """List the tenant's API keys, oldest first, including revoked ones. Secrets are not returned."""
    return list_keys(caller.tenant_id, limit, cursor, database)


@delete("/{key_id:str}", "Revoke an API key", problems(NOT_FOUND="No such API key."))
def revoke(key_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]) -> None:
    """Revoke an API key with immediate effect. It remains in the list of keys."""
    revoke_key(key_id, database, caller)


keys_router = Router("/v1/keys", route_handlers=[create, show, revoke], guards=[administering], tags=["keys"])
