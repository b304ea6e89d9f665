"""/v1/models: the served model, alone and with each of the tenant's collections."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath

from api.access.auth import reading
from api.http.methods import get
from api.openai.errors import NoSuchModel, errors
from api.openai.fields import Created
from api.openai.store_views import is_generated
from ragkv.errors import NotFound
from ragkv.models import public_name
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.page import MAX_PAGE, all_pages
from ragkv.service.collections.collections import CollectionView, collection_view, list_collections
from ragkv.settings import Settings

AT = "@"


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model: the served one, or MODEL@COLLECTION, which answers from that collection."""

    id: Annotated[str, "Id of the model: MODEL, or MODEL@COLLECTION."]
    created: Created
    object: Literal["model"] = "model"
    owned_by: Annotated[str, "Always `ragkv`."] = "ragkv"


class ModelPage(msgspec.Struct, frozen=True, kw_only=True):
    """A list of models."""

    data: Annotated[list[ModelView], "Models."]
    object: Literal["list"] = "list"


@get("/", "List models", errors(), reading)
def index(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    model_folder: NamedDependency[Path],
) -> ModelPage:
    """List the served model, and MODEL@COLLECTION for each collection that was given a name."""
    collections = all_pages(lambda cursor: list_collections(caller.tenant_id, MAX_PAGE, cursor, database))
    named = (view for view in collections if not is_generated(view.name))
    return ModelPage(data=[_served(settings, model_folder), *(_with(view, settings) for view in named)])


@get("/{model:path}", "Get a model", errors(NOT_FOUND="No such model."), reading)
def show(
    model: FromPath[str],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
    model_folder: NamedDependency[Path],
) -> ModelView:
    """Get a model by its id."""
    collection = collection_in(model.lstrip("/"), settings)
    if collection is None:
        return _served(settings, model_folder)
    try:
        return _with(collection_view(caller.tenant_id, collection, database), settings)
    except NotFound as error:
        raise NoSuchModel(str(error)) from None


models_router = Router("/v1/models", route_handlers=[index, show], tags=["openai: models"])


def collection_in(model: str, settings: Settings) -> str | None:
    """The collection, by id or name, in a model's name; None for the model alone. Raises NoSuchModel."""
    served = public_name(settings)
    if model == served:
        return None
    if not model.startswith(served + AT):
        raise NoSuchModel(f"no such model: {model[:200]!r}; use {served!r} or '{served}{AT}COLLECTION'")
    return model.removeprefix(served + AT)


def _served(settings: Settings, model_folder: Path) -> ModelView:
    return ModelView(id=public_name(settings), created=int(model_folder.stat().st_mtime))


def _with(view: CollectionView, settings: Settings) -> ModelView:
    return ModelView(id=f"{public_name(settings)}{AT}{view.name}", created=int(view.created_at.timestamp()))
