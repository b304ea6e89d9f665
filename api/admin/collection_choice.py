"""The collections that a page shows or offers for selection: a tenant's first ones by name, the default one, and the
requested one."""

from collections.abc import Iterable

from ragkv.catalog.collection import CollectionView, collection_view, list_collections
from ragkv.db.database import Database
from ragkv.errors import NotFound
from ragkv.names import one_spelling
from ragkv.page import MAX_PAGE
from ragkv.tenancy import DEFAULT_COLLECTION


def collections_of(tenant_id: str, database: Database, given: str = "") -> list[CollectionView]:
    """The tenant's first collections, in the order of their names, behind the given and the default one where these are
    not among them."""
    found = list_collections(tenant_id, MAX_PAGE, None, database).items
    for name in (DEFAULT_COLLECTION, given):
        if name and chosen_collection(found, name) is None:
            try:
                found.insert(0, collection_view(tenant_id, name, database))
            except NotFound:
                continue
    return found


def names_of_collections(tenant_id: str, database: Database) -> dict[str, str]:
    """Name by id."""
    return {one.id: one.name for one in collections_of(tenant_id, database)}


def chosen_collection(collections: Iterable[CollectionView], given: str) -> CollectionView | None:
    """The one whose id or name is given in a page's address, if it is among them."""
    return next((one for one in collections if given == one.id or one_spelling(given) == one.name), None)
