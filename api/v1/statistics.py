"""/v1/statistics: statistics about a tenant's questions and the engine."""

import asyncio
from typing import Annotated

import msgspec
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.access.auth import reading
from api.http.errors import problems
from api.http.methods import get
from ragkv.models import public_name
from ragkv.service.base.caller import Caller
from ragkv.service.health.condition import EngineView, engine_view
from ragkv.service.parts import Parts
from ragkv.service.statistics.summary import summary
from ragkv.service.statistics.views import Summary, Window


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of the tenant's questions and jobs, and the state of the engine."""

    summary: Annotated[Summary, "Statistics of the tenant's questions."]
    engine: Annotated[EngineView, "State of the engine."]


@get("/v1/statistics", "Get statistics", problems(), reading, tags=["statistics"])
async def statistics(
    caller: NamedDependency[Caller], parts: NamedDependency[Parts], window: FromQuery[Window] = "24h"
) -> Statistics:
    """Get statistics of the tenant's questions over the last hour, day or week, with a time series.

    They include the time to first token of stitched and full prompts, an estimate of what the stitched ones would have
    taken with full prefill, tokens by origin, hit rates, the ingestion queue and the engine.
    """
    return await statistics_of(caller, window, parts)


async def statistics_of(caller: Caller, window: Window, parts: Parts) -> Statistics:
    engine = await engine_view(parts.engine, parts.recomputing)
    model = public_name(parts.settings)
    return Statistics(await asyncio.to_thread(summary, caller.tenant_id, model, window, parts.database), engine)
