"""Tenants and collections."""

import secrets

from sqlalchemy import Select, select
from sqlalchemy.exc import IntegrityError

from ragkv.db.database import Database
from ragkv.db.tables import CollectionRow, TenantRow
from ragkv.errors import NotFound
from ragkv.scope import DEFAULT_COLLECTION, DEFAULT_TENANT, Scope

SECRET_BYTES = 32


def collection_named(tenant: str, collection: str) -> Select[TenantRow, CollectionRow]:
    """A tenant's collection, both by name."""
    return (
        select(TenantRow, CollectionRow)
        .join(CollectionRow, CollectionRow.tenant_id == TenantRow.id)
        .where(TenantRow.name == tenant, CollectionRow.name == collection)
    )


def find_scope(database: Database, tenant: str = DEFAULT_TENANT, collection: str = DEFAULT_COLLECTION) -> Scope:
    """Raises NotFound for a tenant without such a collection."""
    with database.reading() as session:
        found = session.execute(collection_named(tenant, collection)).one_or_none()
        if found is None:
            raise NotFound(f"tenant {tenant!r} has no collection {collection!r}")
        owner, members = found
        return Scope(owner.id, members.id, owner.secret)


def tenant_secret(database: Database, tenant_id: str) -> bytes:
    """What keys the names of the tenant's KV. Raises NotFound."""
    with database.reading() as session:
        tenant = session.get(TenantRow, tenant_id)
        if tenant is None:
            raise NotFound(f"there is no tenant {tenant_id!r}")
        return tenant.secret


def ensure_default_scope(database: Database) -> Scope:
    """The default tenant's default collection, made when missing. Several processes may call it at once."""
    try:
        return find_scope(database)
    except NotFound:
        _make_default_scope(database)
        return find_scope(database)


def _make_default_scope(database: Database) -> None:
    tenant = TenantRow(name=DEFAULT_TENANT, secret=secrets.token_bytes(SECRET_BYTES))
    try:
        with database.writing() as session:
            session.add(tenant)
            session.flush()
            session.add(CollectionRow(tenant_id=tenant.id, name=DEFAULT_COLLECTION))
    except IntegrityError:
        pass  # another process was first: theirs counts
