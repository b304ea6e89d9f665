"""Statements about API keys."""

from datetime import datetime

from sqlalchemy import ColumnElement, Delete, Select, Update, delete, exists, func, or_, select, update
from sqlalchemy.orm import aliased

from ragkv.service.base.lists import one_of
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


def keys_ended_before(moment: datetime, limit: int) -> Select[ApiKeyRow]:
    """API keys that were revoked or expired before the cutoff, but for the newest of all keys and for those that made
    or revoked one that did not end so long ago."""
    other = aliased(ApiKeyRow)
    named = or_(other.created_by == ApiKeyRow.id, other.revoked_by == ApiKeyRow.id)
    newest = select(ApiKeyRow.id).order_by(ApiKeyRow.created_at.desc(), ApiKeyRow.id).limit(1).scalar_subquery()
    by_a_later_one = exists().where(named, ~_ended_before(other, moment))
    ended = _ended_before(ApiKeyRow, moment)
    return select(ApiKeyRow).where(ended, ~by_a_later_one, ApiKeyRow.id != newest).order_by(ApiKeyRow.id).limit(limit)


def forget_keys(key_ids: list[str]) -> Delete:
    return delete(ApiKeyRow).where(one_of(ApiKeyRow.id, key_ids))


def _ended_before(key: type[ApiKeyRow], moment: datetime) -> ColumnElement[bool]:
    """Never null, so that its negation is what it says."""
    return or_(func.coalesce(key.revoked_at < moment, False), func.coalesce(key.expires_at < moment, False))
