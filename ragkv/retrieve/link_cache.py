"""Titles of the collections that were searched last, read again when a collection's documents changed."""

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from ragkv.retrieve.links import TitleLinks

CACHED_COLLECTIONS = 64


class TitleSource(Protocol):
    """The titles of a collection with the chunks under each."""

    def titles(self, tenant_id: str, collection_id: str) -> Mapping[str, Sequence[str]]: ...


class LinkCache:
    """Safe to share between threads. Reading a collection's titles keeps waiting only searches of that collection."""

    def __init__(self, source: TitleSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._cached: dict[tuple[str, str], _Links] = {}

    def of(self, tenant_id: str, collection_id: str, documents: Mapping[str, int]) -> TitleLinks:
        """`documents`: those of the collection now, with their versions."""
        links = self._links_of((tenant_id, collection_id))
        with links.lock:
            if links.titles is None or not links.are_of(documents):
                links.titles = TitleLinks(self._source.titles(tenant_id, collection_id))
            links.documents = documents
            return links.titles

    def held(self) -> list[tuple[str, str]]:
        with self._lock:
            return list(self._cached)

    def drop_unless(self, tenant_id: str, collection_id: str, documents: Mapping[str, int]) -> None:
        """Drop a collection's titles unless these are the documents they were read from."""
        place = tenant_id, collection_id
        with self._lock:
            if place in self._cached and not self._cached[place].are_of(documents):
                del self._cached[place]

    def _links_of(self, place: tuple[str, str]) -> "_Links":
        with self._lock:
            links = self._cached.pop(place, None) or _Links()
            self._cached[place] = links
            while len(self._cached) > CACHED_COLLECTIONS:
                del self._cached[next(iter(self._cached))]
        return links


class _Links:
    """The titles of one collection, and the documents they were read from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.documents: Mapping[str, int] = {}
        self.titles: TitleLinks | None = None

    def are_of(self, documents: Mapping[str, int]) -> bool:
        return self.documents is documents or self.documents == documents
