"""The collections that a page names or lets choose from: a tenant's first ones by name."""

from collections.abc import Iterable

from ragkv.catalog.collection import CollectionView, list_collections
from ragkv.db.database import Database
from ragkv.page import MAX_PAGE


def collections_of(tenant_id: str, database: Database) -> list[CollectionView]:
    """The tenant's first collections, in the order of their names."""
    return list_collections(tenant_id, MAX_PAGE, None, database).items


def names_of_collections(tenant_id: str, database: Database) -> dict[str, str]:
    """Name by id."""
    return {one.id: one.name for one in collections_of(tenant_id, database)}


def chosen_collection(collections: Iterable[CollectionView], given: str) -> CollectionView | None:
    """The one whose id or name is given in a page's address, if it is among them."""
    return next((one for one in collections if given in (one.id, one.name)), None)
