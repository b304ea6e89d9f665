"""Keys of tenants by name."""

from collections.abc import Iterable

from ragkv.service.base.caller import KeyScope
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.keys.keys import IssuedKey, issue_key


def issue_key_by_name(
    tenant: str, name: str, scopes: Iterable[KeyScope], database: Database, days: int | None = None
) -> IssuedKey:
    """A new key of a tenant by name; the tenant is made where there is none. Raises like `issue_key`."""
    return issue_key(ensure_collection(database, tenant).tenant_id, name, scopes, database, days)
