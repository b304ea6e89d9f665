"""The audit log: who did what to which resource and when. Events are added and read; nothing changes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec

from ragkv.service.audit.statements import AUDIT_KEYS, MAX_CHARS, AuditFilter, events_among
from ragkv.service.base.database import Database, Session
from ragkv.service.base.page import MAX_PAGE, all_pages, newest_first, view_from
from ragkv.service.base.tables import AuditRow
from ragkv.text import storable

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was made: `action` in words, `route` as programs know it, `client` an address or the command line.

    `person`: who signed in, where no key was used. `resources`: what was changed or made, one event each. `within`:
    what it belongs to.
    """

    tenant_id: str
    key_id: str | None
    action: str
    route: str
    client: str
    resources: Sequence[str] = ()
    within: str | None = None
    request_id: str | None = None
    person: str | None = None


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One change: who made it, what it was, and to which resource."""

    id: str
    at: Annotated[datetime, "Time of the change."]
    action: Annotated[str, "Change that was made."]
    resource: Annotated[
        str | None, "Id or name of the resource that was changed or made; null where a request names none."
    ]
    within: Annotated[str | None, "Id or name of the resource that it belongs to, if the request named one."]
    key_id: Annotated[
        str | None, "Id of the API key; null for the command line, a person who signed in or without authentication."
    ]
    key_name: Annotated[str | None, "Name of the API key; null if there is none, or its record was removed."]
    person: Annotated[
        str | None,
        "Person who signed in to the dashboard: the e-mail address, if there is one, and the provider's id of "
        "them; null for a key.",
    ]
    client: Annotated[str, "Address that the request came from, or `command line`."]
    route: Annotated[str, "Method and path template of the request."]
    request_id: Annotated[str | None, "Id of the request in the service's log."]


class AuditPage(msgspec.Struct, frozen=True):
    """A page of events, newest first."""

    items: Annotated[list[AuditEvent], "Events, newest first."]
    next: str | None


def record_change(change: Change, database: Database) -> None:
    """Write a change to the audit log. Raises Unavailable."""
    with database.writing() as session:
        add_change(session, change)


def add_change(session: Session, change: Change) -> None:
    """`record_change` in the transaction that makes the change."""
    session.add_all(
        AuditRow(
            tenant_id=change.tenant_id,
            key_id=change.key_id,
            action=change.action,
            route=change.route[:MAX_CHARS],
            client=change.client[:MAX_CHARS],
            resource=None if resource is None else storable(resource[:MAX_CHARS]),
            within=None if change.within is None else storable(change.within[:MAX_CHARS]),
            request_id=change.request_id,
            person=None if change.person is None else storable(change.person[:MAX_CHARS]),
        )
        for resource in change.resources or (None,)
    )


def list_audit(audit_filter: AuditFilter, limit: int, cursor: str | None, database: Database) -> AuditPage:
    """A page of the audit log, newest first. Raises Rejected for an invalid cursor."""
    rows, following = newest_first(database, events_among(audit_filter), AUDIT_KEYS, limit, cursor)
    return AuditPage([view_from(AuditEvent, row, key_name=key_name) for row, key_name in rows], following)


def all_audit(audit_filter: AuditFilter, database: Database) -> Iterator[AuditEvent]:
    """Every event, newest first, read a page at a time."""
    return all_pages(lambda cursor: list_audit(audit_filter, MAX_PAGE, cursor, database))
