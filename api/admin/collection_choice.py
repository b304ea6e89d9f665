"""The collections that a page shows or offers for selection: a tenant's first ones by name, the default one, and the
requested one."""

from collections.abc import Iterable

from ragkv.errors import NotFound
from ragkv.service.base.database import Database
from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.tenancy import DEFAULT_COLLECTION
from ragkv.service.collections.collections import CollectionView, collection_view, list_collections
from ragkv.text import one_spelling


def collections_of(tenant_id: str, database: Database, requested: str = "") -> list[CollectionView]:
    """The tenant's first collections, in the order of their names, behind the given and the default one where these are
    not among them."""
    collections = list_collections(tenant_id, MAX_PAGE, None, database).items
    for name in (DEFAULT_COLLECTION, requested):
        if name and chosen_collection(collections, name) is None:
            try:
                collections.insert(0, collection_view(tenant_id, name, database))
            except NotFound:
                continue
    return collections


def names_of_collections(tenant_id: str, database: Database) -> dict[str, str]:
    """Name by id."""
    return {collection.id: collection.name for collection in collections_of(tenant_id, database)}


def chosen_collection(collections: Iterable[CollectionView], requested: str) -> CollectionView | None:
    """The one whose id or name is given in a page's address, if it is among them."""
    return next(
        (
            collection
            for collection in collections
            if requested == collection.id or one_spelling(requested) == collection.name
        ),
        None,
    )
