"""Keys of tenants by name."""

from collections.abc import Iterable

from ragkv.access.caller import KeyScope
from ragkv.access.keys import IssuedKey, issue_key
from ragkv.db.database import Database
from ragkv.db.tenants import ensure_collection


def issue_key_by_name(
    tenant: str, name: str, scopes: Iterable[KeyScope], database: Database, days: int | None = None
) -> IssuedKey:
    """A new key of a tenant by name; the tenant is made where there is none. Raises like `issue_key`."""
    return issue_key(ensure_collection(database, tenant).tenant_id, name, scopes, database, days)
