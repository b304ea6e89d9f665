"""API keys: create, show once, list, revoke, verify.

A key reads `rk_<id>_<secret>`. The id finds its row; of the secret, 256 random bits, only the SHA-256 is kept.
"""

import hashlib
import hmac
import logging
import math
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from ragkv.errors import NotFound, Rejected, Unauthorised, Unavailable
from ragkv.ids import utc_now
from ragkv.service.audit.statements import MAX_CHARS
from ragkv.service.base.caller import KEY_SCOPES, Caller, KeyScope
from ragkv.service.base.database import Database
from ragkv.service.base.page import Moment, from_cursor, rows_behind, view_from
from ragkv.service.base.tables import ApiKeyRow
from ragkv.service.keys.statements import BY_AGE, BY_VALIDITY, keys_of_tenant, keys_with_tenants, mark_used, some_key
from ragkv.text import clean_name, plural, storable

log = logging.getLogger(__name__)

USE_NOTED_EVERY = timedelta(minutes=1)
MAX_DAYS = 3650
SCOPES = (
    "Scopes of the key. Each scope includes those before it: `metrics` (`GET /metrics` alone), `read`, `write`, "
    "`admin`."
)
_KEY = re.compile(r"rk_([0-9a-f]{16})_([0-9a-f]{64})")
_ID = re.compile(r"[0-9a-f]{16}")
_Id = Annotated[str, Meta(pattern=f"^{_ID.pattern}$")]
_WRONG = "unknown API key: check it, or create one with `ragkv keys create --name NAME`"


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret."""

    id: str
    name: Annotated[str, "Name of the key."]
    scopes: Annotated[list[KeyScope], SCOPES]
    created_at: datetime
    expires_at: Annotated[datetime | None, "Time of expiry; null for none."]
    last_used_at: Annotated[datetime | None, "Time of the last request with the key; null before the first."]
    revoked_at: Annotated[datetime | None, "Time of revocation; null for a valid key."]
    created_by: Annotated[
        str | None,
        "Id of the key that created this one; null if it was created by a person, on the command line or without "
        "authentication.",
    ] = None
    created_by_person: Annotated[
        str | None, "Person who signed in and created this key, directly or through other keys; null if there is none."
    ] = None
    revoked_by: Annotated[
        str | None,
        "Id of the key that revoked this one; null if it was revoked by a person, on the command line or without "
        "authentication.",
    ] = None
    revoked_by_person: Annotated[str | None, "Person who signed in and revoked this key; null if there is none."] = None


class KeyPage(msgspec.Struct, frozen=True):
    """A page of API keys."""

    items: Annotated[list[KeyView], "API keys, oldest first."]
    next: str | None


class IssuedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new API key with its secret, which is not stored and cannot be shown again."""

    key: Annotated[str, "The API key, shown only once."]
    view: Annotated[KeyView, "Properties of the key."]


@dataclass(frozen=True, slots=True)
class Maker:
    """The creator of a key: another key, a person, a key that goes back to a person, or the command line. `until`: the
    latest moment at which their keys expire, within `max_days`."""

    key_id: str | None = None
    person: str | None = None
    until: datetime | None = None
    max_days: int = MAX_DAYS


def maker_of(caller: Caller, database: Database, person_days: int) -> Maker:
    """People's keys expire within `person_days`, and keys that are created with those no later than they do."""
    moment = utc_now()
    if caller.person is not None:
        return Maker(None, _name_of(caller), moment + timedelta(days=person_days), person_days)
    with database.reading() as session:
        row = session.get(ApiKeyRow, caller.key_id) if caller.key_id is not None else None
    if row is None or row.created_by_person is None or row.expires_at is None:
        return Maker(caller.key_id)
    return Maker(
        row.id, row.created_by_person, row.expires_at, math.ceil((row.expires_at - moment) / timedelta(days=1))
    )


def issue_key(
    tenant_id: str,
    name: str,
    scopes: Iterable[KeyScope],
    database: Database,
    days: int | None = None,
    maker: Maker = Maker(),
) -> IssuedKey:
    """A new key of a tenant, for some days or for as long as its maker's keys may last. Raises Rejected for a bad name,
    scope or number of days."""
    requested, moment = set(scopes), utc_now()
    if not requested or not requested <= set(KEY_SCOPES):
        raise Rejected(f"a key needs one or more of the scopes {', '.join(KEY_SCOPES)}")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise Rejected(f"the lifetime of a key must be 1 to {MAX_DAYS} days; omit it for no expiry")
    if days is not None and days > maker.max_days:
        raise Rejected(
            f"this key may last {plural(maker.max_days, 'day')} at most: a key created by a person who signed in expires within "
            "RAGKV_OIDC_KEY_DAYS, and a key created with such a key expires no later than it does. Give fewer days, "
            "or omit them for the longest lifetime"
        )
    expires_at = None if days is None else moment + timedelta(days=days)
    key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    row = ApiKeyRow(
        id=key_id,
        tenant_id=tenant_id,
        name=clean_name(name),
        digest=_digest(secret),
        scopes=" ".join(scope for scope in KEY_SCOPES if scope in requested),
        created_at=moment,
        expires_at=min((end for end in (expires_at, maker.until) if end is not None), default=None),
        created_by=maker.key_id,
        created_by_person=maker.person,
    )
    with database.writing() as session:
        session.add(row)
    return IssuedKey(key=f"rk_{key_id}_{secret}", view=_view(row))


def list_keys(tenant_id: str, limit: int, cursor: str | None, database: Database) -> KeyPage:
    """A page of a tenant's keys, revoked ones too, oldest first. Raises Rejected for an invalid cursor."""
    after = from_cursor(cursor, tuple[Moment, _Id])
    with database.reading() as session:
        keys = rows_behind(session, keys_of_tenant(tenant_id), BY_AGE, limit, after)
        items = [_view(row) for (row,) in keys.items]
    return KeyPage(items, keys.next(lambda row: (row[0].created_at, row[0].id)))


def list_valid_keys_first(tenant_id: str, limit: int, cursor: str | None, database: Database) -> KeyPage:
    """A page of a tenant's keys, newest first, revoked ones behind all others. Raises Rejected for an invalid
    cursor."""
    after = from_cursor(cursor, tuple[bool, Moment, _Id])
    with database.reading() as session:
        keys = rows_behind(session, keys_of_tenant(tenant_id), BY_VALIDITY, limit, after, descending=True)
        items = [_view(row) for (row,) in keys.items]
    return KeyPage(items, keys.next(lambda row: (row[0].revoked_at is None, row[0].created_at, row[0].id)))


def list_all_keys(database: Database) -> list[tuple[str, KeyView]]:
    """(tenant's name, key) of all tenants, oldest first."""
    return [(tenant, _view(row)) for row, tenant in database.rows(keys_with_tenants())]


def revoke_key(key_id: str, database: Database, caller: Caller | None = None) -> str:
    """Refuse the key from now on. Returns its tenant's id. Raises NotFound for an unknown key, and for another tenant's
    than the caller's, where there is one."""
    with database.writing() as session:
        row = session.get(ApiKeyRow, key_id, with_for_update=True) if _ID.fullmatch(key_id) else None
        if row is None or (caller is not None and caller.tenant_id != row.tenant_id):
            raise NotFound(f"there is no API key {key_id[:80]!r}; `ragkv keys list` shows the ids")
        if row.revoked_at is None:
            row.revoked_at = utc_now()
            if caller is not None:
                row.revoked_by, row.revoked_by_person = caller.key_id, _name_of(caller)
        return row.tenant_id


def any_key(database: Database) -> bool:
    """Whether there ever was a key."""
    return database.scalar(some_key()) is not None


def is_like_a_key(word: str) -> bool:
    """Whether a word looks like one of our keys, right or wrong."""
    return word.startswith("rk_")


def authenticate(key: str, database: Database) -> Caller:
    """The caller whose key this is. Raises Unauthorised for one that is wrong, expired or revoked."""
    parts = _KEY.fullmatch(key)
    if parts is None:
        raise Unauthorised(_WRONG)
    moment = utc_now()
    with database.reading() as session:
        row = session.get(ApiKeyRow, parts[1])
    digest = row.digest if row is not None else bytes(32)
    if not hmac.compare_digest(_digest(parts[2]), digest) or row is None:
        raise Unauthorised(_WRONG)
    return _caller(row, moment, database)


def recognise(key_id: str, database: Database) -> Caller:
    """The caller of a key by its id alone, once the key itself was authenticated. Raises like `authenticate`."""
    with database.reading() as session:
        row = session.get(ApiKeyRow, key_id)
    if row is None:
        raise Unauthorised(_WRONG)
    return _caller(row, utc_now(), database)


def _caller(row: ApiKeyRow, now: datetime, database: Database) -> Caller:
    if row.revoked_at is not None:
        raise Unauthorised(f"the API key {row.id} was revoked: use another")
    if row.expires_at is not None and row.expires_at <= now:
        raise Unauthorised(f"the API key {row.id} expired on {row.expires_at:%Y-%m-%d}: create another")
    if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EVERY:  # rarely: reading stays reading
        try:
            database.execute(mark_used(row.id, now, now - USE_NOTED_EVERY))
        except Unavailable as error:
            log.warning("the use of API key %s was not noted: %s", row.id, error)
    return Caller(row.tenant_id, row.id, frozenset(_scopes(row)))


def _name_of(caller: Caller) -> str | None:
    """A person as the audit log names them; None for a key."""
    return None if caller.person is None else storable(str(caller.person)[:MAX_CHARS])


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _scopes(row: ApiKeyRow) -> list[KeyScope]:
    return [scope for scope in KEY_SCOPES if scope in row.scopes.split()]


def _view(row: ApiKeyRow) -> KeyView:
    return view_from(KeyView, row, scopes=_scopes(row))
