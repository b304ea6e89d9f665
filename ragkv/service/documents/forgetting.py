"""Removes data derived from deleted documents and collections: kept answers, and vectors in this process's memory."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ragkv.errors import Unavailable
from ragkv.ids import batched
from ragkv.service.answer_cache.recent import RecentAnswers, checksum
from ragkv.service.answer_cache.ring import GONE, AnswerRing
from ragkv.service.base.database import Database
from ragkv.service.collections.statements import generations_of

if TYPE_CHECKING:
    from ragkv.service.documents.indexed import DatabaseSource
    from ragkv.service.documents.removal import Removal

log = logging.getLogger(__name__)

CollectionIds = tuple[str, str]
"""A tenant and its collection."""


def forget_answers(tenant_id: str, collection_id: str, removal: "Removal") -> None:
    """Remove the answers that were kept before the collection's last change, all of them once it is deleted, and
    recent answers.

    Call it after the commit. While Redis is away they stay for the worker's sweep, and none of them is given any more.
    """
    generation = _generations([(tenant_id, collection_id)], removal.database).get(collection_id, GONE)
    try:
        removal.answer_ring.forget(tenant_id, collection_id, generation)
        removal.recent_answers.forget(tenant_id, collection_id)
        if removal.append_log is not None:  # last: a rewrite that begins before this holds what was there
            removal.append_log.note_deletion()
    except Unavailable as error:
        log.warning("kept answers of collection %s are removed by a later sweep: %s", collection_id, error)


def forget_stale_answers(database: Database, answer_ring: AnswerRing) -> int:
    """Remove the answers of every collection that changed since, and of those that are gone. Returns how many rings.

    Raises Unavailable.
    """
    held = answer_ring.collections()
    generations = _generations(held, database)
    forgotten = sum(
        answer_ring.forget(tenant, collection, generations.get(collection, GONE)) for tenant, collection in held
    )
    return forgotten + answer_ring.drop_unlisted()


def forget_stale_recent_answers(recent: RecentAnswers, source: "DatabaseSource") -> int:
    """Remove recent answers about text that is gone, where a deletion could not. Returns how many. Raises
    Unavailable."""

    def checksums(tenant_id: str, chunk_ids: list[str]) -> dict[str, int]:
        return {chunk.id: checksum(chunk) for chunk in source.chunks(tenant_id, chunk_ids)}

    return sum(
        recent.keep_only(tenant, collection, partial(checksums, tenant)) for tenant, collection in recent.collections()
    )


class MemoryKeeper:
    """Keeps the index in this process's memory, if there is one, free of what other processes have deleted."""

    def __init__(self, removal: "Removal") -> None:
        self._removal = removal
        self._seen: dict[CollectionIds, int] = {}

    def forget_deleted(self) -> None:
        """Drop deleted collections; bring those that changed up to date. Raises Unavailable."""
        retriever = self._removal.retriever()
        if retriever is None:
            return
        held = retriever.held()
        generations = _generations(held, self._removal.database)
        for tenant_id, collection_id in held:
            place, generation = (tenant_id, collection_id), generations.get(collection_id)
            if generation is None:
                retriever.forget(*place)
                self._seen.pop(place, None)
            elif self._seen.get(place) != generation:
                retriever.refresh(*place)
                self._seen[place] = generation


def forget_in_memory(tenant_id: str, collection_id: str, removal: "Removal") -> None:
    """A collection was deleted: this process drops it at once, others with their next `forget_deleted`."""
    if (retriever := removal.retriever()) is not None:
        retriever.forget(tenant_id, collection_id)


def _generations(held: Sequence[CollectionIds], database: Database) -> Mapping[str, int]:
    """Generation by collection, without deleted collections."""
    ids = [collection_id for _, collection_id in held]
    with database.reading() as session:
        return {
            collection_id: generation
            for batch in batched(ids)
            for collection_id, generation in session.execute(generations_of(batch))
        }
