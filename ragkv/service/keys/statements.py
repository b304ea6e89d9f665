"""Statements about API keys."""

from datetime import datetime

from sqlalchemy import Select, Update, or_, select, update

from ragkv.service.base.page import Keys
from ragkv.service.base.tables import ApiKeyRow, TenantRow

BY_AGE: Keys = (ApiKeyRow.created_at.expression, ApiKeyRow.id.expression)
BY_VALIDITY = (ApiKeyRow.revoked_at.is_(None), *BY_AGE)
"""Revoked keys, then those that are not, each by age."""


def keys_of_tenant(tenant_id: str) -> Select[ApiKeyRow]:
    """A tenant's keys."""
    return select(ApiKeyRow).where(ApiKeyRow.tenant_id == tenant_id)


def keys_with_tenants() -> Select[ApiKeyRow, str]:
    """(key, name of its tenant) of all tenants, oldest first."""
    joined = select(ApiKeyRow, TenantRow.name).join(TenantRow, TenantRow.id == ApiKeyRow.tenant_id)
    return joined.order_by(*BY_AGE)


def some_key() -> Select[str]:
    """One key's id, revoked or not, if there ever was a key."""
    return select(ApiKeyRow.id).limit(1)


def mark_used(key_id: str, moment: datetime, cutoff: datetime) -> Update:
    """Note a use, unless one after the cutoff is noted already."""
    stale = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at < cutoff)
    return update(ApiKeyRow).where(ApiKeyRow.id == key_id, stale).values(last_used_at=moment)
