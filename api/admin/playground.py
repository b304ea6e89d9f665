"""The playground: ask a question and see the origin of every prompt token. Questions are sent to /v1/ask."""

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from api.admin.shell import AdminRequest, page
from ragkv.catalog.collection import list_collections
from ragkv.page import MAX_PAGE
from ragkv.parts import Parts
from ragkv.policies import POLICIES
from ragkv.tenancy import DEFAULT_COLLECTION


@get("/playground", sync_to_thread=True)
def playground_page(
    request: AdminRequest,
    parts: NamedDependency[Parts],
    collection: FromQuery[str] = DEFAULT_COLLECTION,
    question: FromQuery[str] = "",
) -> Response[str]:
    """Render the form, filled with `collection` (id or name) and `question`."""
    shown = list_collections(request.user.tenant_id, MAX_PAGE, None, parts.database)
    chosen = next((item.id for item in shown.items if collection in (item.id, item.name)), None)
    return page(
        request,
        "playground.html",
        collections=shown.items,
        chosen=chosen,
        question=question,
        policies=POLICIES,
        settings=parts.settings,
    )
