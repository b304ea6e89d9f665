"""Verification of KV files against their checksums, one piece at a time."""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ragkv.errors import Corrupt, NotFound, Unavailable, Unsupported
from ragkv.ids import batched
from ragkv.kv.file import receive_kv
from ragkv.service.base.database import Database
from ragkv.service.base.kv_disk import sizes_of_remote
from ragkv.service.base.long_work import ProgressInterval
from ragkv.service.kv_admin.entry_statements import KVOwner, documents_using, entries_of, keys_with_entries
from ragkv.service.kv_admin.eviction import evict_entries

if TYPE_CHECKING:
    from ragkv.kv.layout import Layout
    from ragkv.kv.remote import ObjectStore
    from ragkv.kv.store import KVStore

FileHealth = Literal["sound", "damaged", "missing", "unusable"]
LOST: tuple[FileHealth, ...] = ("damaged", "missing")


class Verified(msgspec.Struct, frozen=True):
    """The progress of a verification, or at its end the result."""

    checked: Annotated[int, "Number of verified KV files."]
    total: Annotated[int, "Number of KV files to verify."]
    bytes: Annotated[int, "Size of the verified KV files in bytes."]
    damaged: Annotated[int, "Files with a wrong checksum or of another key. They were deleted."] = 0
    missing: Annotated[int, "Files that do not exist."] = 0
    unusable: Annotated[
        int,
        "Files that cannot be opened, belong to another model or are only on another host's disk. They were not "
        "changed.",
    ] = 0
    documents: Annotated[list[str], "Ids of the documents that lost KV."] = []


@dataclass(slots=True)
class _Count:
    """`lost`: health by key."""

    checked: int = 0
    bytes: int = 0
    unusable: int = 0
    lost: dict[str, FileHealth] = field(default_factory=dict)

    def add(self, key: str, size: int, health: FileHealth) -> None:
        self.checked += 1
        self.bytes += size
        self.unusable += health == "unusable"
        if health in LOST:
            self.lost[key] = health

    def so_far(self, total: int, documents: list[str]) -> Verified:
        lost = list(self.lost.values())
        damaged, missing = lost.count("damaged"), lost.count("missing")
        return Verified(self.checked, total, self.bytes, damaged, missing, self.unusable, documents)


def verify(
    owner: KVOwner, database: Database, kv_store: "KVStore", kv_remote: "ObjectStore | None", layout: "Layout"
) -> Generator[Verified, None, None]:
    """Read every KV file of an owner, and the objects of those that are not on this disk. Says how far it is every half
    second; the last says what was found.

    What is lost, and was not made again or evicted meanwhile, is forgotten at the end, also when the iterator is closed
    early; the last count has that alone.
    With an object store, what was not uploaded and is not on this disk may be on another host's: it is not lost.
    """
    entries = {key: int(size) for key, size in database.rows(entries_of(owner))}
    count, pace = _Count(), ProgressInterval()
    expected = set(entries)
    if kv_remote is not None:
        expected &= sizes_of_remote(database, sorted(expected)).keys()
    try:
        for key, size in entries.items():
            health = _health(key, kv_store, layout)
            count.add(key, size, "unusable" if health == "missing" and key not in expected else health)
            if pace.is_due():
                yield count.so_far(len(entries), [])
    finally:
        lost = [key for key in count.lost if _health(key, kv_store, layout) in LOST]
        with database.reading() as session:
            lost = [key for batch in batched(lost) for key in session.scalars(keys_with_entries(batch))]
            documents = {document for batch in batched(lost) for document in session.scalars(documents_using(batch))}
        evict_entries([(key, entries[key]) for key in lost], database, kv_store)
    count.lost = {key: count.lost[key] for key in lost}
    yield count.so_far(len(entries), sorted(documents))


def _health(key: str, kv_store: "KVStore", layout: "Layout") -> FileHealth:
    """Reading a damaged file removes it. What has no sound file may have a sound object."""
    health: FileHealth = "missing"
    if key in kv_store:
        if kv_store.open(key, layout) is not None:
            return "sound"
        health = "unusable" if key in kv_store else "damaged"
    if health == "unusable" or kv_store.remote is None:
        return health
    with TemporaryDirectory() as folder:
        try:
            receive_kv(Path(folder) / f"{key}.safetensors", partial(kv_store.remote.fetch, key))
        except NotFound:
            return health
        except Corrupt:
            return "damaged"
        except (Unavailable, Unsupported, OSError):
            return "unusable"
    return "sound"
