"""/v1/writer: the writer in use, and those that can be used."""

from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from api.access.auth import administering
from api.http.errors import json_problems, problems
from api.http.methods import delete, get, put
from ragkv.service.base.caller import Caller
from ragkv.service.parts import Parts
from ragkv.service.writers import Writers, stop_writer, use_writer, writers

_NOT_DEFAULT = "The API key does not belong to the default tenant."


class WriterBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a writer: `embedded`, or a folder in the data folder's `writers`."""

    name: Annotated[str, "Name of the writer: `embedded`, or a folder in `writers` of the data folder."]


@get("/", "Get the writer in use", problems(FORBIDDEN=_NOT_DEFAULT), administering)
def show_writer(caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> Writers:
    """Get the writer in use and those that may be used."""
    return writers(caller.tenant_id, parts)


@put(
    "/",
    "Replace the writer in use",
    json_problems(
        FORBIDDEN=_NOT_DEFAULT,
        NOT_FOUND="No such writer.",
        UNPROCESSABLE_ENTITY="The writer is for another model, or did not pass its evaluation.",
    ),
    administering,
)
def choose_writer(
    data: JSONBody[WriterBody], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> Writers:
    """Replace the writer in use, from the next start of the service. The KV of all documents is then computed again in
    the background, and the old KV is used until then.
    """
    return use_writer(caller.tenant_id, data.name, parts)


@delete("/", "Stop using the writer", problems(FORBIDDEN=_NOT_DEFAULT), administering, status_code=200)
def drop_writer(caller: NamedDependency[Caller], parts: NamedDependency[Parts]) -> Writers:
    """Stop using the writer: from the next start of the service, the plain model computes KV."""
    return stop_writer(caller.tenant_id, parts)


writer_router = Router("/v1/writer", route_handlers=[show_writer, choose_writer, drop_writer], tags=["kv"])
