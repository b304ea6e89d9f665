"""The overview page: time and tokens that cached KV saved for a tenant's questions, and the state of the service."""

import asyncio
from dataclasses import dataclass

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.charts import ORIGINS, first_token_chart, origin_chart
from api.admin.shell import AdminRequest, page
from api.v1.probes import Probes
from api.v1.statistics import statistics_of
from ragkv.catalog.collection import num_documents
from ragkv.file_types import READ_KINDS
from ragkv.models import public_name
from ragkv.parts import Parts
from ragkv.statistics.summary import latest
from ragkv.statistics.views import FirstToken, FullCost, Percentiles, Window
from ragkv.upkeep.condition import OK

LATEST = 12


@dataclass(frozen=True, slots=True)
class Runner:
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
    now = await statistics_of(request.user, window, parts)
    asked = await asyncio.to_thread(latest, request.user.tenant_id, public_name(parts.settings), LATEST, parts.database)
    race = _race(now.summary.first_token)
    return page(
        request,
        "overview.html",
        found=now.summary,
        engine=now.engine,
        trouble={part: words for part, words in (await probes.look()).items() if words != OK and part != "engine"},
        latest=asked,
        documents=0 if asked else await asyncio.to_thread(num_documents, request.user.tenant_id, parts.database),
        race=race,
        slowest=max((runner.times.p95_ms for runner in race if runner.times), default=1.0),
        ttft=first_token_chart(now.summary),
        tokens=origin_chart(now.summary),
        origins=ORIGINS,
        kinds=READ_KINDS,
    )


def _race(first: FirstToken) -> list[Runner]:
    """The bars: stitched, the same questions in full (estimated), and measured full prefill where there is any."""
    runners = [
        Runner("Stitched", "stitched", first.stitched),
        Runner("The same in full", "in-full", first.stitched_in_full),
    ]
    return runners if first.full is None else [*runners, Runner("Measured in full", "full", first.full)]
