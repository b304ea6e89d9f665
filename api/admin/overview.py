"""The overview page: time and tokens that cached KV saved for a tenant's questions, and the state of the service."""

import asyncio
from dataclasses import dataclass

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.charts import ORIGINS, first_token_chart, origin_chart
from api.admin.shell import AdminRequest, page
from api.v1.health import Probes
from api.v1.statistics import statistics_of
from ragkv.file_types import READ_KINDS
from ragkv.models import public_name
from ragkv.service.collections.collections import num_documents
from ragkv.service.health.condition import OK
from ragkv.service.parts import Parts
from ragkv.service.statistics.summary import latest
from ragkv.service.statistics.views import FullCost, Percentiles, Window

LATEST = 12


@dataclass(frozen=True, slots=True)
class RaceBar:
    """One bar of the comparison at the top of the page."""

    name: str
    kind: str
    times: Percentiles | FullCost | None


@get("/")
async def overview_page(
    request: AdminRequest,
    parts: NamedDependency[Parts],
    probes: NamedDependency[Probes],
    window: FromQuery[Window] = "24h",
) -> Response[str]:
    """Render the overview, which refreshes itself every few seconds."""
    statistics = await statistics_of(request.user, window, parts)
    questions = await asyncio.to_thread(
        latest, request.user.tenant_id, public_name(parts.settings), LATEST, parts.database
    )
    first_token = statistics.summary.first_token
    race = [
        RaceBar("Stitched", "stitched", first_token.stitched),
        RaceBar("The same in full", "in-full", first_token.stitched_in_full),  # estimated
        *([RaceBar("Measured in full", "full", first_token.full)] if first_token.full else []),
    ]
    return page(
        request,
        "overview.html",
        found=statistics.summary,
        engine=statistics.engine,
        trouble={part: words for part, words in (await probes.look()).items() if words != OK and part != "engine"},
        latest=questions,
        documents=0 if questions else await asyncio.to_thread(num_documents, request.user.tenant_id, parts.database),
        race=race,
        slowest=max((runner.times.p95_ms for runner in race if runner.times), default=1.0),
        ttft=first_token_chart(statistics.summary),
        tokens=origin_chart(statistics.summary),
        origins=ORIGINS,
        kinds=READ_KINDS,
    )
