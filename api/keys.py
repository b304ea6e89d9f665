"""/v1/keys: a tenant's API keys, for whoever holds one with the scope admin."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Request, Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from api.auth import administering
from api.errors import json_problems, problems
from api.observe import note_made
from ragkv.access.caller import Caller, KeyScope
from ragkv.access.keys import MAX_DAYS, IssuedKey, KeyView, issue_key, list_keys, revoke_key
from ragkv.parts import Parts


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made. Each scope includes those before it: read, write, admin."""

    name: Annotated[str, Meta(examples=["indexing job"])]
    scopes: Annotated[tuple[KeyScope, ...], Meta(examples=[["read", "write"]])] = ("read",)
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, examples=[90])] | None = None


@post("/", summary="Make a key", responses=json_problems(UNPROCESSABLE_ENTITY="The name will not do."))
async def create(
    data: JSONBody[NewKey],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> IssuedKey:
    """Make a key. It is shown in this answer and never again."""
    wanted = (data.name, data.scopes, data.days)
    issued = await asyncio.to_thread(issue_key, parts.database, caller.tenant_id, *wanted, caller.key_id)
    note_made(request, issued.view.id)
    return issued


@get("/", summary="List keys", responses=problems())
async def show(caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> list[KeyView]:
    """The tenant's keys, revoked ones too, without their secrets."""
    return await asyncio.to_thread(list_keys, parts.database, caller.tenant_id)


@delete("/{key_id:str}", summary="Revoke a key", responses=problems(NOT_FOUND="No such key."))
async def revoke(key_id: FromPath[str], caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> None:
    """Refuse a key from now on. It stays in the list."""
    await asyncio.to_thread(revoke_key, parts.database, key_id, caller.tenant_id, caller.key_id)


def keys_router() -> Router:
    return Router("/v1/keys", route_handlers=[create, show, revoke], guards=[administering], tags=["keys"])
