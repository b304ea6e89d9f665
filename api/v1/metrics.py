"""/metrics: metrics of the whole service, for Prometheus."""

import asyncio

from litestar import Response, get
from litestar.di import NamedDependency

from api.access.auth import scraping
from api.http.draining import SERVED_WHILE_DRAINING
from api.http.errors import problems
from api.v1.probes import Probes
from ragkv.access.caller import Caller
from ragkv.errors import Forbidden
from ragkv.observe import metrics
from ragkv.parts import Parts
from ragkv.upkeep.condition import OK
from ragkv.upkeep.gauges import read_gauges, render


@get(
    "/metrics",
    guards=[scraping],
    tags=["health"],
    summary="Get metrics",
    opt={SERVED_WHILE_DRAINING: True},
    media_type="text/plain",
    responses=problems(),
)
async def metrics_of_all(
    parts: NamedDependency[Parts], caller: NamedDependency[Caller], probes: NamedDependency[Probes]
) -> Response[bytes]:
    """Get metrics in the Prometheus text format, including those of vLLM if the engine runs in this process.

    They are sums over all tenants and therefore need an API key of the default tenant; the scope `metrics` is enough.
    """
    if caller.tenant_id != parts.default_collection.tenant_id:
        raise Forbidden("metrics cover all tenants: send an API key of the default tenant")
    found = await probes.look()
    up = {part: found[part] == OK for part in ("engine", "database", "redis", "index", "worker")}
    rendered = render(await asyncio.to_thread(read_gauges, up, parts))
    return Response(rendered, media_type=metrics.MEDIA_TYPE)
