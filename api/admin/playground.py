"""The playground: ask a question and see the origin of every prompt token. Questions are sent to /v1/ask."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.collections import chosen_collection, collections_of
from api.admin.shell import AdminRequest, page
from ragkv.answer.recompute import Recomputing
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.settings import Settings
from ragkv.stitch.policies import POLICIES


@get("/playground", sync_to_thread=True)
def playground_page(
    request: AdminRequest,
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    recomputing: NamedDependency[Recomputing],
    collection: FromQuery[str] = DEFAULT_COLLECTION,
    question: FromQuery[str] = "",
) -> Response[str]:
    """Render the form, filled with `collection` (id or name) and `question`."""
    collections = collections_of(request.user.tenant_id, database, collection)
    selected = chosen_collection(collections, collection)
    return page(
        request,
        "playground.html",
        collections=collections,
        chosen=selected.id if selected else None,
        question=question,
        policies=POLICIES,
        recompute=recomputing.default(written=True),
        named_ratio=recomputing.default(written=False).ratio,  # a policy that is named is to be seen
        settings=settings,
    )
