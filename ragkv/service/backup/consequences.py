"""Consequences of a restore, known before it changes anything: rows that come back, stay away, and are lost."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ragkv.ids import utc_now
from ragkv.service.backup.dump import TableDump, lines_of
from ragkv.service.backup.restored import deleted_ids, ends_of_keys, hashes_by_id
from ragkv.service.webhooks.statements import PENDING

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Consequences(msgspec.Struct, frozen=True, kw_only=True):
    """Consequences of restoring a backup of the moment `made_at`.

    documents: that the service has afterwards. reappearing: those of them that it does not have now. older_files: those
        for which it has another file now. deleted: documents of the backup that were deleted since; they come back only
        with `with_deleted`, and count as reappearing then. lost: documents that only the service has.
    valid_keys: ids of API keys that become valid, and are not valid now. revoked_keys: keys of the backup that stay
        revoked. lost_keys: valid keys that only the service has.
    unsent: messages of webhooks that were pending.
    """

    made_at: datetime
    documents: int
    reappearing: int
    older_files: int
    deleted: int
    lost: int
    valid_keys: list[str]
    revoked_keys: int
    lost_keys: int
    unsent: int


def consequences(
    made_at: datetime, dumps: Sequence[TableDump], tables: Path, connection: "Connection", *, with_deleted: bool
) -> Consequences:
    """Compare the tables of a backup, in the form of the newest schema, with those of the database."""
    here = hashes_by_id(connection)
    of_backup = {line["id"]: (line["sha256"], line["collection_id"]) for line in _lines("documents", dumps, tables)}
    listed = set() if with_deleted else deleted_ids(connection)
    deleted = {row_id for row_id, (_, collection_id) in of_backup.items() if {row_id, collection_id} & listed}
    valid, revoked = _keys_of(connection)
    valid_in_backup = {line["id"] for line in _lines("api_keys", dumps, tables) if _is_valid(line)}
    return Consequences(
        made_at=made_at,
        documents=len(of_backup.keys() - deleted),
        reappearing=len(of_backup.keys() - deleted - here.keys()),
        older_files=sum(here.get(row_id, sha256) != sha256 for row_id, (sha256, _) in of_backup.items()),
        deleted=len(deleted),
        lost=len(here.keys() - of_backup.keys()),
        valid_keys=sorted(valid_in_backup - revoked - valid),
        revoked_keys=len(valid_in_backup & revoked),
        lost_keys=len(valid - valid_in_backup),
        unsent=sum(line["status"] == PENDING for line in _lines("webhook_deliveries", dumps, tables)),
    )


def _keys_of(connection: "Connection") -> tuple[set[str], set[str]]:
    """Ids of keys that are valid now, and of those that are not and stay so."""
    ends = ends_of_keys(connection)
    revoked = {key_id for key_id, (revoked_at, _) in ends.items() if revoked_at is not None}
    moment = utc_now()
    unexpired = {key_id for key_id, (_, expires_at) in ends.items() if expires_at is None or expires_at > moment}
    return unexpired - revoked, revoked | deleted_ids(connection)


def _is_valid(key: dict[str, Any]) -> bool:
    ends_at = key["expires_at"]
    return key["revoked_at"] is None and (ends_at is None or datetime.fromisoformat(ends_at) > utc_now())


def _lines(name: str, dumps: Sequence[TableDump], tables: Path) -> Iterator[dict[str, Any]]:
    """None for a table that the backup does not have."""
    return (line for dumped in dumps if dumped.name == name for line in lines_of(tables, dumped))
