"""Tenants and their collections."""

import secrets
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Select, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ragkv.errors import NotFound
from ragkv.ids import is_id
from ragkv.service.base.database import Database
from ragkv.service.base.tables import CollectionRow, TenantRow
from ragkv.text import one_spelling, storable

DEFAULT_TENANT = "default"
DEFAULT_COLLECTION = "default"
SECRET_BYTES = 32
_GONE = "the collection was deleted in the meantime"


@dataclass(frozen=True, slots=True)
class CollectionRef:
    """One tenant's collection. `secret` is the tenant's: it keys the names of all its KV."""

    tenant_id: str
    collection_id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"CollectionRef(tenant_id={self.tenant_id!r}, collection_id={self.collection_id!r})"


def collection_of(tenant_id: str, collection: str) -> Select[bytes, CollectionRow]:
    """(the tenant's secret, the collection), the collection by id or by name. Those of others find nothing."""
    is_named = CollectionRow.name == storable(one_spelling(collection))
    return (
        select(TenantRow.secret, CollectionRow)
        .join(CollectionRow, CollectionRow.tenant_id == TenantRow.id)
        .where(
            CollectionRow.tenant_id == tenant_id,
            CollectionRow.id == collection if is_id(collection) else is_named,
        )
    )


def count_tenants() -> Select[int]:
    return select(func.count(TenantRow.id))


def tenant_ids_by_name() -> Select[str, str]:
    """(id, name) of every tenant."""
    return select(TenantRow.id, TenantRow.name)


def tenant_ids() -> Select[str]:
    return select(TenantRow.id)


def find_collection_ref(
    database: Database, tenant: str = DEFAULT_TENANT, collection: str = DEFAULT_COLLECTION
) -> CollectionRef:
    """The ids of a tenant and its collection, by their names. Raises NotFound for a tenant without such a
    collection."""
    by_names = (
        select(TenantRow.id, CollectionRow.id, TenantRow.secret)
        .join(CollectionRow, CollectionRow.tenant_id == TenantRow.id)
        .where(TenantRow.name == one_spelling(tenant), CollectionRow.name == one_spelling(collection))
    )
    if (row := database.row(by_names)) is None:
        raise NotFound(f"tenant {tenant!r} has no collection {collection!r}")
    return CollectionRef(*row)


def tenant_secret(tenant_id: str, database: Database) -> bytes:
    """The secret that keys the names of the tenant's KV. Raises NotFound."""
    return _tenant(tenant_id, database).secret


def tenant_name(tenant_id: str, database: Database) -> str:
    """The name of a tenant. Raises NotFound."""
    return _tenant(tenant_id, database).name


def _tenant(tenant_id: str, database: Database) -> TenantRow:
    with database.reading() as session:
        tenant = session.get(TenantRow, tenant_id)
        if tenant is None:
            raise NotFound(f"there is no tenant {tenant_id!r}")
        return tenant


def collection_ref(tenant_id: str, collection: str, database: Database) -> CollectionRef:
    """A tenant's collection, by its id or its name. Raises NotFound."""
    with database.reading() as session:
        secret, members = find_collection(session, tenant_id, collection)
        return CollectionRef(tenant_id, members.id, secret)


def find_collection(session: Session, tenant_id: str, collection: str) -> tuple[bytes, CollectionRow]:
    """(the tenant's secret, its collection, by its id or its name). Raises NotFound."""
    row = session.execute(collection_of(tenant_id, collection)).one_or_none()
    if row is None:
        raise NotFound(f"there is no collection {collection[:80]!r}: check its name, or create it first")
    secret, members = row
    return secret, members


def known_collection(session: Session, collection_id: str, *, lock: bool = False) -> CollectionRow:
    """A collection that was there, for the transaction to change alone with `lock`, its name too: that waits for those
    who add rows that refer to it. Raises NotFound if it is gone."""
    row = session.get(CollectionRow, collection_id, with_for_update=lock)
    if row is None:
        raise NotFound(_GONE)
    return row


def hold_collection(session: Session, collection_id: str) -> None:
    """Keep a collection from being deleted until this transaction ends. Raises NotFound if it is gone."""
    statement = select(CollectionRow.id).where(CollectionRow.id == collection_id)
    if session.scalar(statement.with_for_update(read=True, key_share=True)) is None:
        raise NotFound(_GONE)


def ensure_collection(database: Database, tenant: str = DEFAULT_TENANT) -> CollectionRef:
    """A tenant's default collection; both are made when missing. Several processes may call it at once."""
    with suppress(NotFound):
        return find_collection_ref(database, tenant)
    row = TenantRow(name=tenant, secret=secrets.token_bytes(SECRET_BYTES))
    with suppress(IntegrityError), database.writing() as session:  # another process was first: theirs counts
        session.add(row)
        session.flush()
        session.add(CollectionRow(tenant_id=row.id, name=DEFAULT_COLLECTION))
    return find_collection_ref(database, tenant)
