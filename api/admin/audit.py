"""The audit page: who did what to which resource and when."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.service.audit.log import list_audit
from ragkv.service.audit.statements import AuditFilter
from ragkv.service.base.database import Database

EVENTS_A_PAGE = 50


@get("/audit", sync_to_thread=True)
def audit_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    resource: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the tenant's audit log, newest first, all of it or what was done to one resource."""
    criteria = AuditFilter(request.user.tenant_id, resource.strip() or None)
    events = list_audit(criteria, EVENTS_A_PAGE, cursor, database)
    return page(request, "audit.html", events=events, resource=resource.strip(), cursor=cursor)
