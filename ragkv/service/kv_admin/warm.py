"""Warming of KV before questions arrive: from the object store to this disk, and into memory."""

import logging
from collections.abc import Generator
from functools import partial

import msgspec

from ragkv.errors import OutOfSpace, RagKVError
from ragkv.service.base.long_work import ProgressInterval
from ragkv.service.kv_admin.entry_statements import KVOwner, recent_entries
from ragkv.service.parts import Parts

_PIECE = 1 << 20

log = logging.getLogger(__name__)


class Warmed(msgspec.Struct, frozen=True):
    """The progress of warming, or at its end the result: files read into memory, and how many of them were loaded
    first."""

    looked_at: int
    total: int
    files: int = 0
    bytes: int = 0
    loaded: int = 0
    missing: int = 0
    is_full: bool = False


def warm(owner: KVOwner, parts: Parts) -> Generator[Warmed, None, None]:
    """Load the KV of an owner, and of the prefix, that is not on this disk, and read all of it once: the operating
    system keeps it in memory.

    What was used last comes first, and nothing has to go for it: it ends when the disk's limit is reached. Says how far
    it is every half second; the last says what was done.
    """
    used = [(key, int(size)) for key, size in parts.database.rows(recent_entries(owner))]
    entries = [(parts.keys_of(owner.tenant_id).prefix(), 0), *used]
    files = num_bytes = loaded = missing = 0
    is_full, pace = False, ProgressInterval()

    def so_far() -> Warmed:
        return Warmed(files + missing, len(entries), files, num_bytes, loaded, missing, is_full)

    for key, size in entries:
        try:
            if not parts.kv_store.touch(key) and parts.kv_remote is not None:
                if not parts.kv_disk.has_room(size):
                    is_full = True
                    break
                with parts.kv_disk.room(size):
                    parts.kv_store.fetch(key, parts.kv_remote)
                loaded += 1
            with parts.kv_store.path(key).open("rb", buffering=0) as file:
                num_bytes += sum(map(len, iter(partial(file.read, _PIECE), b"")))
            files += 1
        except OutOfSpace:
            is_full = True
            break
        except (RagKVError, OSError) as error:
            log.info("%s stays where it is: %s", key, error)
            missing += 1
        if pace.is_due():
            yield so_far()
    yield so_far()
