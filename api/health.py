"""Whether the process is up, and whether it can do its work."""

from http import HTTPStatus
from typing import Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec

from api.auth import PUBLIC
from api.ending import ALWAYS, Ending
from api.probes import Probes
from ragkv.upkeep.condition import OK

NEEDED = ("engine", "database", "redis", "index")
"""Without one of these no question is answered: 503."""
DEGRADING = ("worker", "queue", "disk")
"""Without these questions are answered and documents wait."""


class Readiness(msgspec.Struct, frozen=True):
    """Each part: "ok", or what is wrong with it.

    `ready`: questions are answered. `degraded`: the parts that are not ok although it is: questions are answered, but
    documents wait to be read (`worker`, `queue`) or are about to be refused (`disk`).
    """

    ready: bool
    engine: str
    database: str
    redis: str
    service: str = OK
    index: str = OK
    worker: str = OK
    queue: str = OK
    disk: str = OK
    degraded: list[str] = []


class Health(msgspec.Struct, frozen=True):
    """The process is up."""

    status: Literal["ok"] = "ok"


@get("/healthz", tags=["health"], summary="Whether it is up", opt={PUBLIC: True, ALWAYS: True})
async def healthz() -> Health:
    """200 while the process is up, whatever it can do."""
    return Health()


@get(
    "/readyz",
    tags=["health"],
    summary="Whether it can work",
    opt={PUBLIC: True, ALWAYS: True},
    responses={503: ResponseSpec(Readiness, generate_examples=False, description="Something is away.")},
)
async def readyz(probes: NamedDependency[Probes], ending: NamedDependency[Ending]) -> Response[Readiness]:
    """200 if engine, database, Redis and index answer and the service is not stopping, else 503 with what is wrong.

    Where no worker runs or hangs, documents wait for long, or the disk is nearly full, it is 200 and `degraded` says so.
    """
    readiness = await check(probes)
    if ending.has_begun:
        readiness = msgspec.structs.replace(readiness, ready=False, service="stopping: ask another, or later")
    return Response(readiness, status_code=HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def check(probes: Probes) -> Readiness:
    found = await probes.look()
    return Readiness(
        ready=all(found[part] == OK for part in NEEDED),
        degraded=[part for part in DEGRADING if found[part] != OK],
        **found,
    )
