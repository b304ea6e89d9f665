"""/healthz, /readyz, which is /health too, and /metrics: liveness, readiness, metrics for Prometheus.

`/readyz` is public, so each probe of a component runs at most once at a time and concurrent callers share its result; a
component that hangs costs one thread, or one task for the engine.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from litestar import Response
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec

from api.access.auth import PUBLIC, scraping
from api.http.draining import SERVED_WHILE_DRAINING, Draining
from api.http.errors import headers_of, problems
from api.http.methods import get
from ragkv.errors import Forbidden, Unavailable
from ragkv.observe import metrics
from ragkv.service.base.caller import Caller
from ragkv.service.health import condition
from ragkv.service.health.condition import OK, PATIENCE_S, SILENT
from ragkv.service.health.gauges import read_gauges, render
from ragkv.service.parts import Parts

NEEDED = ("engine", "database", "redis", "index", "service")
"""Components without which no question is answered: 503."""
DEGRADING = ("worker", "queue", "disk")
"""Components without which questions are answered, but documents wait."""

Look = Callable[[Parts], str]

LOOKS: dict[str, Look] = {
    "database": condition.database,
    "redis": condition.redis,
    "index": condition.index,
    "worker": condition.worker,
    "queue": condition.queue,
    "disk": condition.disk,
}


class Probes:
    """Reads the condition of every component, by its name: "ok", or a description of the problem."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._threads = ThreadPoolExecutor(len(LOOKS), thread_name_prefix="probe")
        self._running: dict[str, asyncio.Future[str]] = {}

    async def look(self) -> dict[str, str]:
        names = ("engine", *LOOKS)
        conditions = dict(zip(names, await asyncio.gather(*map(self._outcome, names)), strict=True))
        return conditions | {"service": self._parts.loading.trouble() or OK}

    async def _outcome(self, name: str) -> str:
        running = self._running.get(name)
        if running is None or running.done():
            running = self._running[name] = (
                asyncio.ensure_future(self._parts.engine.status())
                if name == "engine"
                else asyncio.get_running_loop().run_in_executor(self._threads, LOOKS[name], self._parts)
            )
        done, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
        return running.result() if done else SILENT


class Readiness(msgspec.Struct, frozen=True):
    """The state of each component: "ok", or a description of the problem."""

    ready: Annotated[bool, "Whether questions can be answered."]
    engine: Annotated[str, "State of the inference engine."]
    database: Annotated[str, "State of the database."]
    redis: Annotated[str, "State of Redis."]
    service: Annotated[str, "State of the service: loading its models, shutting down, or neither."] = OK
    index: Annotated[str, "State of the search index."] = OK
    worker: Annotated[str, "State of the ingestion workers."] = OK
    queue: Annotated[str, "State of the ingestion queue."] = OK
    disk: Annotated[str, "State of the disk: available space."] = OK
    degraded: Annotated[list[str], "Components with a problem that does not affect answers."] = []


class Health(msgspec.Struct, frozen=True):
    """Liveness of the process."""

    status: Literal["ok"] = "ok"


@get("/healthz", "Check liveness", tags=["health"], opt={PUBLIC: True, SERVED_WHILE_DRAINING: True})
async def healthz() -> Health:
    """Check that the process is running. Returns 200 even if components that it depends on are unavailable."""
    return Health()


@get(
    "/readyz",
    "Check readiness",
    {
        503: ResponseSpec(
            Readiness,
            generate_examples=False,
            description="A required component is unavailable, or the service has not loaded its models or is shutting down.",
        )
    },
    tags=["health"],
    opt={PUBLIC: True, SERVED_WHILE_DRAINING: True},
)
async def readyz(probes: NamedDependency[Probes], draining: NamedDependency[Draining]) -> Response[Readiness]:
    """Check that questions can be answered: engine, database, Redis and index respond, and the service has loaded
    its models and is not shutting down.

    Problems that only affect ingestion are listed in `degraded` and do not change the status: no worker, a stalled
    worker, a long queue or an almost full disk.
    """
    readiness = await check(probes)
    if draining.started:
        readiness = msgspec.structs.replace(
            readiness, ready=False, service="shutting down: use another instance, or try again later"
        )
    if readiness.ready:
        return Response(readiness, status_code=HTTPStatus.OK)
    headers = headers_of(Unavailable("not ready"))  # as other responses have while a component is away
    return Response(readiness, status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


health = get("/health", "Check readiness", opt=readyz.opt, include_in_schema=False)(readyz.fn)
"""The same at the path that vLLM has, and its clients look for."""


@get(
    "/metrics",
    "Get metrics",
    problems(),
    scraping,
    tags=["health"],
    opt={SERVED_WHILE_DRAINING: True},
    media_type="text/plain",
)
async def metrics_of_all(
    parts: NamedDependency[Parts], caller: NamedDependency[Caller], probes: NamedDependency[Probes]
) -> Response[bytes]:
    """Get metrics in the Prometheus text format, including those of vLLM if the engine runs in this process.

    They are sums over all tenants and therefore need an API key of the default tenant; the scope `metrics` is enough.
    """
    if caller.tenant_id != parts.default_collection.tenant_id:
        raise Forbidden("metrics cover all tenants: send an API key of the default tenant")
    conditions = await probes.look()
    up = {part: conditions[part] == OK for part in ("engine", "database", "redis", "index", "worker")}
    rendered = render(await asyncio.to_thread(read_gauges, up, parts))
    return Response(rendered, media_type=metrics.MEDIA_TYPE)


async def check(probes: Probes) -> Readiness:
    conditions = await probes.look()
    return Readiness(
        ready=all(conditions[part] == OK for part in NEEDED),
        degraded=[part for part in DEGRADING if conditions[part] != OK],
        **conditions,
    )
