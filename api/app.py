"""The ASGI app: routes, middleware, dependencies and lifespan."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException

from api.access.admission import CONFIRM_EVERY_S, Admissions
from api.access.auditing import Auditing, note_change
from api.access.auth import authentication, caller_of
from api.access.concurrency import STATE, ConcurrencyLimits
from api.access.session import CROSS_ORIGIN, CrossOrigin
from api.access.tarpit import Tarpit
from api.admin.responses import PATH as DASHBOARD
from api.admin.responses import error_page, guard_pages
from api.admin.router import admin_router
from api.background import beside, evaluating, forgetting_deleted, sweeping_disk
from api.http.bodies import GRACE_S, BodyTimeout, CheckedRequest
from api.http.draining import Draining, RefuseWhileDraining
from api.http.errors import problem_response
from api.http.files import FILES
from api.http.methods import HeadLikeGet, name_all_methods
from api.http.observe import Observing
from api.http.turns import Turns
from api.mcp.server import MCPServer, exchange
from api.mcp.tools import Service
from api.openai import examples as openai
from api.openai.chat import chat_router
from api.openai.embeddings import embed
from api.openai.errors import PATHS as OPENAI_PATHS
from api.openai.errors import error_response
from api.openai.files import files_router
from api.openai.models import models_router
from api.openai.responses import responses_router
from api.openai.vector_stores import vector_stores_router
from api.schema.document import Examples
from api.schema.site import openapi_config
from api.v1 import examples as native
from api.v1.ask import BODY_BYTES, ask
from api.v1.audit import audit_router
from api.v1.collections import collections_router
from api.v1.data_sources import data_sources_router
from api.v1.documents import documents_router
from api.v1.evaluations import evaluations_router
from api.v1.events import ProgressStreams, collection_events, document_events
from api.v1.health import Probes, health, healthz, metrics_of_all, readyz
from api.v1.keys import keys_router
from api.v1.kv import kv_router
from api.v1.pages import pages_router
from api.v1.questions import answers_router, questions_router
from api.v1.search import search
from api.v1.statistics import statistics
from api.v1.webhooks import webhooks_router
from api.v1.writer import writer_router
from ingest.page_views import PageViews
from ragkv.engine.door import EngineDoor
from ragkv.errors import RagKVError, Unavailable
from ragkv.service.checks.cleaning import remove_unnamed_files
from ragkv.service.documents.removal import Removal
from ragkv.service.parts import Parts
from ragkv.threads import FairPool

THREADS = 6
"""For plain handlers and other blocking work without a pool of its own. More would only contend for the interpreter."""

MEMBERS = (
    "answer_ring", "database", "default_collection", "gate", "intake", "kv_remote", "kv_store", "provider",
    "queue", "recent_answers", "sessions", "settings", "sign_in", "worker_counters",
)  # fmt: skip
"""Parts that handlers take by their names. None is the name of a field of a body: for Litestar an invalid field of such
a name is an error of ours."""
READ_AT_FIRST = ("layout", "model_folder", "recomputing")
"""Likewise, but the model's folder is read for them when they are first needed: in a thread."""

EXAMPLES = Examples((native.example_of, openai.example_of), native.STREAMS | openai.STREAMS, native.LINES)

log = logging.getLogger(__name__)


def create_app(
    parts: Parts,
    draining: Draining | None = None,
    confirm_every_s: float = CONFIRM_EVERY_S,
    body_grace_s: float = GRACE_S,
    when_built: Callable[[], None] = lambda: None,
) -> Litestar:
    """Create the app over prepared parts. Its lifespan starts the engine in the background and stops it at the end.

    Once `draining` has started, new requests are refused. `confirm_every_s`: how often callers with long streams are
    checked. `body_grace_s`: how long a client may take to send a small body. `when_built` is called once everything
    that questions need is loaded.
    """
    draining = draining or Draining()
    probes = Probes(parts)
    page_views = PageViews(parts)
    admissions = Admissions(parts.gate, parts.sessions, parts.settings.public_url, confirm_every_s)
    streams = ProgressStreams(admissions, draining, parts.settings.max_streams)
    mcp = MCPServer(Service(parts, page_views))
    cross_origin = CrossOrigin(parts.settings.allowed_origins)

    def removal_of_request(request: Request[Any, Any, Any]) -> Removal:
        """Each removal is noted as a change that the request made, also if it fails after that."""
        return parts.removal.noting(partial(note_change, request))

    app = Litestar(
        route_handlers=[
            collections_router,
            collection_events,
            kv_router,
            writer_router,
            documents_router(parts.settings),
            document_events,
            pages_router,
            search,
            ask,
            answers_router,
            questions_router,
            evaluations_router,
            statistics,
            keys_router,
            webhooks_router,
            data_sources_router,
            audit_router,
            models_router,
            chat_router,
            responses_router,
            embed,
            files_router(parts.settings),
            vector_stores_router,
            exchange,
            admin_router,
            healthz,
            readyz,
            health,
            metrics_of_all,
        ],
        middleware=[RefuseWhileDraining(draining), authentication(admissions)],
        dependencies={
            "parts": Provide(lambda: parts, sync_to_thread=False),
            **{name: Provide(_member(parts, name), sync_to_thread=False) for name in MEMBERS},
            **{name: Provide(_member(parts, name), sync_to_thread=True) for name in READ_AT_FIRST},
            "file_store": Provide(_member(parts, "files"), sync_to_thread=False),
            "chunk_source": Provide(_member(parts, "source"), sync_to_thread=True),
            "draining": Provide(lambda: draining, sync_to_thread=False),
            "probes": Provide(lambda: probes, sync_to_thread=False),
            "streams": Provide(lambda: streams, sync_to_thread=False),
            "mcp": Provide(lambda: mcp, sync_to_thread=False),
            "page_views": Provide(lambda: page_views, sync_to_thread=False),
            "caller": Provide(caller_of, sync_to_thread=False),
            "removal": Provide(removal_of_request, sync_to_thread=False),
        },
        exception_handlers=dict.fromkeys((RagKVError, HTTPException, Exception), respond_to_error),
        before_send=[guard_pages, name_all_methods, cross_origin.share, Auditing(parts.database).record],
        lifespan=[
            lambda _: _running_engine(parts, when_built),
            forgetting_deleted(parts.removal, page_views),
            sweeping_disk(parts.database, parts.settings, parts.files, parts.kv_store, parts.prefixes),
            evaluating(parts),
            mcp.running,
        ],
        on_shutdown=[page_views.close],
        openapi_config=openapi_config(EXAMPLES),
        request_max_body_size=BODY_BYTES,
        request_class=CheckedRequest,
        state=State(
            {STATE: ConcurrencyLimits(parts.settings, draining), FILES: parts.files, CROSS_ORIGIN: cross_origin}
        ),
        logging_config=None,
    )
    timed = BodyTimeout(Turns(app.asgi_handler), body_grace_s)
    app.asgi_handler = Observing(HeadLikeGet(Tarpit(timed, parts.settings.refusals_per_minute)), draining)
    return app


def respond_to_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """An error in the form that clients of the path read. For the whole app: a router does not see paths that it
    lacks."""
    path = f"{request.scope['path']}/"
    if path.startswith(f"{DASHBOARD}/"):
        return error_page(request, error)
    return error_response(request, error) if path.startswith(OPENAI_PATHS) else problem_response(request, error)


def _member(parts: Parts, name: str) -> Callable[[], Any]:
    def member() -> Any:
        return getattr(parts, name)

    return member


@asynccontextmanager
async def _running_engine(parts: Parts, when_built: Callable[[], None]) -> AsyncIterator[None]:
    asyncio.get_running_loop().set_default_executor(FairPool("work", THREADS))
    # Workers of this machine may ask this process's engine. Those of others need RAGKV_ENGINE_URL, as it then does.
    is_own = parts.settings.engine_url is None
    door = EngineDoor(parts.engine, parts.settings.engine_socket) if is_own else nullcontext()
    try:
        async with beside(_start(parts, when_built)), door:
            yield
    finally:
        await parts.engine.stop()


async def _start(parts: Parts, when_built: Callable[[], None]) -> None:
    """Load what questions need, then start the engine, even if that failed: it is loaded again when needed."""
    with suppress(Unavailable):  # it is logged
        await parts.loading.finished(patience_s=None)
        await asyncio.to_thread(when_built)
    if parts.kv_remote is not None:  # this host may have no worker, which sweeps
        await _logged(
            asyncio.to_thread(remove_unnamed_files, parts.database, parts.files, parts.kv_store, parts.prefixes),
            "KV files that nothing names stay on this disk",
        )
        await _logged(asyncio.to_thread(parts.kv_disk.make_room, 0), "KV still takes more of this disk than it may")
    if await _logged(parts.engine.start(), "the engine did not start"):
        log.info("the engine is ready")


async def _logged(work: Awaitable[object], problem: str) -> bool:
    """Whether the work succeeded. A failure is logged: it would not show before the service stops."""
    try:
        await work
    except RagKVError as error:
        log.error("%s: %s", problem, error)  # noqa: TRY400 - the message says what to do, a trace does not
    except Exception:
        log.exception(problem)
    else:
        return True
    return False
