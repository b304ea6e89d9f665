"""Whether the process is up, and whether it can do its work."""

import asyncio
from http import HTTPStatus
from typing import Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec

from api.auth import PUBLIC
from api.ending import ALWAYS, Ending
from ragkv.errors import RagKVError
from ragkv.parts import Parts
from ragkv.redis_door import ping


class Readiness(msgspec.Struct, frozen=True):
    """Each part: "ok", or what is wrong with it."""

    ready: bool
    engine: str
    database: str
    redis: str
    service: str = "ok"


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
async def readyz(parts: NamedDependency[Parts], ending: NamedDependency[Ending]) -> Response[Readiness]:
    """200 if engine, database and Redis answer and the service is not stopping, else 503 with what is wrong."""
    readiness = await check(parts)
    if ending.has_begun:
        readiness = msgspec.structs.replace(readiness, ready=False, service="stopping: ask another, or later")
    return Response(readiness, status_code=HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def check(parts: Parts) -> Readiness:
    engine = "ok" if await parts.engine.ready() else "not started yet, or it stopped: see the service's log"
    database = await asyncio.to_thread(_database, parts)
    redis = await asyncio.to_thread(_redis, parts)
    return Readiness(engine == database == redis == "ok", engine, database, redis)


def _database(parts: Parts) -> str:
    try:
        parts.database.ping()
    except RagKVError as error:
        return str(error)
    return "ok"


def _redis(parts: Parts) -> str:
    try:
        ping(parts.redis)
    except RagKVError as error:
        return str(error)
    return "ok"
