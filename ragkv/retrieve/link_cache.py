"""Titles of the most recently searched collections; those of documents that have changed since are read again."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ragkv.retrieve.links import TitledChunk, TitleLinks
from ragkv.threads import RecentlyUsed

CACHED_COLLECTIONS = 64
MOST_READ_ANEW = 5000
"""Limit on changed documents; with more the whole collection is read."""


class TitleSource(Protocol):
    """The titles of a collection's chunks, or of those of some documents, in any order."""

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> Iterable[TitledChunk]: ...


class LinkCache:
    """Safe to share between threads. Reading a collection's titles keeps waiting only searches of that collection."""

    def __init__(self, source: TitleSource) -> None:
        self._source = source
        self._cached = RecentlyUsed[tuple[str, str], _Links](_Links, CACHED_COLLECTIONS)

    def of(self, tenant_id: str, collection_id: str, documents: Mapping[str, int]) -> TitleLinks:
        """`documents`: those of the collection now, with their versions. What changed since the last time is read."""
        place = tenant_id, collection_id
        return self._caught_up(self._cached.of(place), place, documents)

    def held(self) -> list[tuple[str, str]]:
        return self._cached.keys()

    def refresh(self, tenant_id: str, collection_id: str, documents: Mapping[str, int]) -> None:
        """Like `of` if the collection's titles are held: those of other documents are dropped."""
        place = tenant_id, collection_id
        links = self._cached.peek(place)
        if links is not None:
            self._caught_up(links, place, documents)

    def drop(self, tenant_id: str, collection_id: str) -> None:
        self._cached.drop((tenant_id, collection_id))

    def _caught_up(self, links: "_Links", place: tuple[str, str], documents: Mapping[str, int]) -> TitleLinks:
        with links.lock:
            if links.documents is not documents:
                written = [
                    document_id
                    for document_id, version in documents.items()
                    if links.documents.get(document_id) != version
                ]
                if links.titles is None or len(written) > MOST_READ_ANEW:
                    links.titles = TitleLinks(t for t in self._source.titles(*place) if t.document_id in documents)
                elif outdated := {*written, *(links.documents.keys() - documents.keys())}:
                    read = self._source.titles(*place, written) if written else ()
                    links.titles = links.titles.changed(outdated, read)
                links.documents = documents
            assert links.titles is not None, "read when they were first asked for"
            return links.titles


class _Links:
    """The titles of one collection, and the documents they were read from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.documents: Mapping[str, int] = {}
        self.titles: TitleLinks | None = None
