"""The jobs page: queued, running, finished and failed jobs, with the reasons of failures."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.service.base.database import Database
from ragkv.service.base.status import JobStatus
from ragkv.service.documents.jobs import jobs_by_status, list_jobs

JOBS_A_PAGE = 25


@get("/jobs", sync_to_thread=True)
def jobs_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    status: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Response[str]:
    """Render the tenant's jobs, newest first, all or of one status. A failed job is retried through its document."""
    job_status = JobStatus(status) if status in list(JobStatus) else None
    tenant_id = request.user.tenant_id
    jobs = list_jobs(tenant_id, job_status, JOBS_A_PAGE, cursor, database)
    counts = jobs_by_status(tenant_id, database)
    return page(request, "jobs.html", jobs=jobs, counts=counts, status=job_status, cursor=cursor)
