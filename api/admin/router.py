"""Routes of the dashboard: pages for callers with the scope admin, and ways to leave a session for everyone."""

from litestar import Router, get
from litestar.response import Redirect
from litestar.types import ControllerRouterHandler

from api.access.auth import PUBLIC, administering, reading
from api.access.session import own_pages_only
from api.admin.assets import static_file
from api.admin.audit import audit_page
from api.admin.collections import collection_page, collections_page
from api.admin.data_sources import data_source_page, data_sources_page
from api.admin.documents import document_page
from api.admin.evaluations import evaluation_page, evaluations_page
from api.admin.headers import PATH
from api.admin.jobs import jobs_page
from api.admin.keys import keys_page
from api.admin.kv import kv_page
from api.admin.login import login, login_page
from api.admin.logout import logout
from api.admin.overview import overview_page
from api.admin.plan import plan_page
from api.admin.playground import playground_page
from api.admin.questions import questions_page
from api.admin.settings import settings_page
from api.admin.sign_in import begin_sign_in, finish_sign_in, switch_tenant
from api.admin.webhooks import webhooks_page
from api.admin.writer import writer_page

PAGES: list[ControllerRouterHandler] = [
    overview_page,
    playground_page,
    questions_page,
    evaluations_page,
    evaluation_page,
    collections_page,
    collection_page,
    document_page,
    jobs_page,
    keys_page,
    webhooks_page,
    data_sources_page,
    data_source_page,
    audit_page,
    kv_page,
    plan_page,
    writer_page,
    settings_page,
]
"""Handlers by their paths below /admin."""


@get("/", opt={PUBLIC: True}, include_in_schema=False)
async def dashboard() -> Redirect:
    """The dashboard, for people who know no more than the host."""
    return Redirect(PATH)


def admin_router() -> Router:
    public = Router("/", route_handlers=[dashboard, login_page, login, begin_sign_in, finish_sign_in, static_file])
    pages = Router("/", route_handlers=PAGES, guards=[administering])
    leaving = Router("/", route_handlers=[logout, switch_tenant], guards=[reading])  # rights may have become fewer
    own = Router(PATH, route_handlers=[pages, leaving], guards=[own_pages_only], include_in_schema=False)
    return Router("/", route_handlers=[public, own])
