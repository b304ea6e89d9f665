"""Collections with the progress of their files."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ragkv.service.base.database import Database, Session
from ragkv.service.base.page import Page, PageRequest, Position, rows_of
from ragkv.service.base.status import ANSWERING, Status
from ragkv.service.base.tables import CollectionRow
from ragkv.service.base.tenants import find_collection
from ragkv.service.files.statements import COLLECTION_KEYS, bytes_in, collections_by_age, status_counts


@dataclass(frozen=True, slots=True)
class Store:
    """A collection: its files by the state of their documents, and their bytes."""

    id: str
    name: str
    created_at: datetime
    statuses: Counter[Status]
    num_bytes: int

    @property
    def num_searchable(self) -> int:
        return sum(self.statuses[status] for status in ANSWERING)


def names_of(collection_ids: Iterable[str], database: Database) -> dict[str, str]:
    """Names of collections by id, of those that are there."""
    with database.reading() as session:
        rows = (session.get(CollectionRow, collection_id) for collection_id in set(collection_ids))
        return {row.id: row.name for row in rows if row is not None}


def store_of(tenant_id: str, collection: str, database: Database) -> Store:
    """A collection by id or name. Raises NotFound."""
    with database.reading() as session:
        _, row = find_collection(session, tenant_id, collection)
        return _stores(session, tenant_id, [row])[0]


def list_stores(tenant_id: str, page: PageRequest, database: Database) -> Page[Store]:
    """A page of a tenant's collections with the progress of their files. Raises NotFound if the collection to begin at
    does not exist."""

    def position_of(collection_id: str) -> Position:
        _, row = find_collection(session, tenant_id, collection_id)
        return row.created_at, row.id

    with database.reading() as session:
        rows = rows_of(session, collections_by_age(tenant_id), COLLECTION_KEYS, page, position_of)
        return Page(_stores(session, tenant_id, [row for (row,) in rows.items]), rows.more)


def _stores(session: Session, tenant_id: str, rows: Sequence[CollectionRow]) -> list[Store]:
    ids = [row.id for row in rows]
    statuses: dict[str, Counter[Status]] = defaultdict(Counter)
    for collection_id, status, count in session.execute(status_counts(tenant_id, ids)):
        statuses[collection_id][status] = count
    sizes = {collection_id: int(num_bytes) for collection_id, num_bytes in session.execute(bytes_in(ids))}
    return [Store(row.id, row.name, row.created_at, statuses[row.id], sizes.get(row.id, 0)) for row in rows]
