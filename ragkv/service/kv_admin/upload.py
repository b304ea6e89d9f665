"""Upload of KV to the object store: KV that is only on this disk is copied there."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from ragkv.errors import OutOfSpace, Unavailable
from ragkv.ids import BATCH, utc_now
from ragkv.observe.throttled_log import ThrottledLog
from ragkv.service.base.kv_disk import REMOTE, moved, on_disk_alone
from ragkv.service.kv_admin.entry_statements import keys_with_entries, tenants_with_kv
from ragkv.service.kv_admin.rule_statements import is_to_upload
from ragkv.service.parts import Parts

if TYPE_CHECKING:
    from ragkv.kv.remote import ObjectStore

AT_ONCE = 8
PREFIXES_S = 3600.0
"""Time after which prefixes are looked for in the object store again: a question that finds one damaged removes it."""

Outcome = Literal["copied", "gone", "failed"]

log = logging.getLogger(__name__)


class UploadedKV(NamedTuple):
    """Files and bytes that have a copy now, and files that could not be uploaded."""

    files: int
    bytes: int
    failed: int


class Uploader:
    """One per process. Several processes may upload at once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._log = ThrottledLog(log)
        self._prefixes: set[str] = set()
        self._look_at = 0.0

    def upload_due(self) -> UploadedKV:
        """Upload what is due by the collections' rules, and now and then the prefixes that the object store has lost.
        Raises Unavailable when the database is away."""
        remote = self._parts.kv_remote
        if remote is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + PREFIXES_S
            tenants = set(self._parts.database.scalars(tenants_with_kv(REMOTE)))
            try:
                self._prefixes = {key for tenant in tenants if remote.has(key := self._parts.keys_of(tenant).prefix())}
            except Unavailable as error:  # they wait for the next time
                self._log.warning("prefixes are not looked for in the object store: %s", error)
            else:
                self._upload_prefixes(tenants, remote)
        return self.upload(due_alone=True)

    def upload(self, *, due_alone: bool = False) -> UploadedKV:
        """Upload the KV that lies on this disk alone, all of it or what is due by the collections' rules.

        It ends at a failure, and the next call goes on from there. Raises Unavailable when the database is away.
        """
        files = num_bytes = failed = 0
        remote, after, settings = self._parts.kv_remote, "", self._parts.settings
        due = is_to_upload(settings.kv_rule, utc_now(), settings.eviction_half_life_s)
        while remote is not None and not failed:
            waiting = on_disk_alone(after, BATCH)
            page = self._parts.database.rows(waiting.where(due) if due_alone else waiting)
            if not page:
                break
            after = page[-1][0]
            sizes = {key: size for key, _, size in page if key in self._parts.kv_store}
            self._upload_prefixes({tenant for key, tenant, _ in page if key in sizes}, remote)
            outcomes = self._copy(list(sizes), remote)
            copied = [key for key, outcome in outcomes.items() if outcome == "copied"]
            with self._parts.database.writing() as session:
                session.execute(moved(copied, REMOTE))
                with_entry = set(session.scalars(keys_with_entries(copied)))
            with suppress(Unavailable):  # the sweep finds them
                if removed := [key for key in copied if key not in with_entry]:  # during the upload
                    remote.delete(removed)
            files += len(copied)
            num_bytes += sum(sizes[key] for key in copied)
            failed += sum(outcome == "failed" for outcome in outcomes.values())
        return UploadedKV(files, num_bytes, failed)

    def _upload_prefixes(self, tenants: set[str], remote: "ObjectStore") -> None:
        """Prefixes have no entries: each is uploaded once by each process, and again if it is lost."""
        keys = [key for tenant in tenants if (key := self._parts.keys_of(tenant).prefix()) not in self._prefixes]
        outcomes = self._copy(keys, remote)
        self._prefixes.update(key for key, outcome in outcomes.items() if outcome == "copied")

    def _copy(self, keys: Sequence[str], remote: "ObjectStore") -> dict[str, Outcome]:
        with ThreadPoolExecutor(AT_ONCE, "upload") as threads:
            return dict(zip(keys, threads.map(lambda key: self._copy_one(key, remote), keys), strict=True))

    def _copy_one(self, key: str, remote: "ObjectStore") -> Outcome:
        try:
            remote.put(key, self._parts.kv_store.path(key))
        except FileNotFoundError:  # evicted meanwhile
            return "gone"
        except Unavailable as error:
            self._log.warning("KV stays on this disk alone until the object store can be written: %s", error)
            return "failed"
        except OSError as error:
            self._log.warning("KV is not uploaded until its file can be read: %s", error)
            return "failed"
        return "copied"


def has_room_on_disk(num_bytes: int, parts: Parts) -> bool:
    """Whether this disk has room for `num_bytes` more of KV, after removing copies and uploading the rest for it.

    Raises Unavailable when the database is away.
    """
    try:
        parts.kv_disk.make_room(num_bytes)
    except OutOfSpace:
        Uploader(parts).upload()
        parts.kv_disk.copied()
        try:
            parts.kv_disk.make_room(num_bytes)
        except OutOfSpace as error:
            log.warning("KV is not kept: %s", error)
            return False
    return True
