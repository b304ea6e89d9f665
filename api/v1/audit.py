"""/v1/audit: the tenant's audit log, for callers with the scope admin."""

from typing import Annotated

from litestar import Router
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from api.access.auth import administering
from api.http.errors import problems
from api.http.methods import get
from api.v1.lists import JSON_LINES, Limit, json_lines, read_moment
from ragkv.service.audit.log import AuditPage, all_audit, list_audit
from ragkv.service.audit.statements import AuditFilter
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database

Resource = Annotated[str | None, QueryParameter(description="Return only events about this resource: its id or name.")]
Key = Annotated[str | None, QueryParameter(description="Return only events by this API key.")]
Since = Annotated[
    str | None, QueryParameter(description="Return only events from this time on, like `2026-01-05T09:30:00Z`.")
]
Until = Annotated[
    str | None, QueryParameter(description="Return only events before this time, like `2026-01-05T09:30:00Z`.")
]


def audit_filter(
    caller: NamedDependency[Caller],
    resource: Resource = None,
    key_id: Key = None,
    since: Since = None,
    until: Until = None,
) -> AuditFilter:
    """The dependency `criteria`. Raises Rejected for a time that is none."""
    return AuditFilter(caller.tenant_id, resource, key_id, read_moment("since", since), read_moment("until", until))


@get("/", "List audit events", problems(UNPROCESSABLE_ENTITY="Invalid cursor or time."))
def show(
    criteria: NamedDependency[AuditFilter],
    database: NamedDependency[Database],
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> AuditPage:
    """List who did what to which resource and when, newest first."""
    return list_audit(criteria, limit, cursor, database)


@get(
    "/export",
    "Download audit events",
    problems(UNPROCESSABLE_ENTITY="Invalid time."),
    response_description="Events as JSON lines.",
    media_type=JSON_LINES,
)
def export(criteria: NamedDependency[AuditFilter], database: NamedDependency[Database]) -> Stream:
    """Download all events that match as JSON lines, newest first, one event per line."""
    return json_lines(all_audit(criteria, database), "audit.jsonl")


audit_router = Router(
    "/v1/audit",
    route_handlers=[show, export],
    dependencies={"criteria": Provide(audit_filter, sync_to_thread=False)},
    guards=[administering],
    tags=["audit"],
)
