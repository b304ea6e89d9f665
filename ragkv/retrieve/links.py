"""Links between passages: a text that names another chunk's title points at that chunk. Titles of the most recently
searched collections are kept; those of documents that have changed since are read again."""

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple, Protocol

from ragkv.retrieve.languages import DEFAULT, STOP_WORDS
from ragkv.retrieve.sparse import without_accents
from ragkv.threads import RecentlyUsed

MAX_CHUNKS = 64
"""A name that more chunks share than this says nothing about any of them."""
MIN_LETTERS = 3

_WORD = re.compile(r"\w+")
_JOINTS, _HYPHENS, _IN_NUMBERS = frozenset(".&@+"), frozenset("-\u2010\u2011"), frozenset(",:")
_SHORT = 2
_FUNCTION_WORDS = STOP_WORDS[DEFAULT]
_QUALIFIER = re.compile(r"(?<!\s)\s*\([^()]*\)\s*$")

Name = tuple[str, ...]


class TitledChunk(NamedTuple):
    """A chunk and its title. They sort by document, and within one as they stand there."""

    document_id: str
    ordinal: int
    chunk_id: str
    title: str


Group = tuple[TitledChunk, ...]
"""Chunks with the same name, sorted."""


class TitleLinks:
    """The titles of one collection, ready to be found in text. It never changes."""

    def __init__(self, chunks: Iterable[TitledChunk] = ()) -> None:
        self._documents: dict[str, Group] = {}
        self._groups: dict[Name, Group] = {}
        self._lengths: dict[str, tuple[tuple[int, int], ...]] = {}
        """For the first word of names, how many words they have, longest first, and how many names have as many."""
        self._replace((), chunks)

    def changed(self, document_ids: Iterable[str], chunks: Iterable[TitledChunk]) -> "TitleLinks":
        """Others, in which these documents have these chunks. Takes time by their number and, little, by all."""
        links = TitleLinks()
        links._documents, links._groups = dict(self._documents), dict(self._groups)
        links._lengths = dict(self._lengths)
        links._replace(document_ids, chunks)
        return links

    def _replace(self, document_ids: Iterable[str], chunks: Iterable[TitledChunk]) -> None:
        removed = _by_name(chunk for document_id in document_ids for chunk in self._documents.pop(document_id, ()))
        written = sorted(chunks)
        for document_id, of_document in groupby(written, key=attrgetter("document_id")):
            self._documents[document_id] = tuple(of_document)
        added = _by_name(written)
        usable: Counter[Name] = Counter()  # names that may be found now (1), or may no longer (-1)
        for name in removed.keys() | added.keys():
            old, outdated = self._groups.pop(name, ()), set(removed.get(name, ()))
            group = tuple(sorted([*(chunk for chunk in old if chunk not in outdated), *added.get(name, ())]))
            if group:
                self._groups[name] = group
            usable[name] = _is_link(group) - _is_link(old)
        changes: dict[str, Counter[int]] = defaultdict(Counter)
        for name, change in usable.items():
            changes[name[0]][len(name)] += change
        for first_word, by_length in changes.items():
            counts = Counter(dict(self._lengths.pop(first_word, ()))) + Counter(by_length)
            if lengths := tuple(sorted(counts.items(), reverse=True)):
                self._lengths[first_word] = lengths

    def mentioned(self, text: str) -> list[tuple[str, ...]]:
        """For each title that the text names, in order of appearance, the ids of the chunks under it.

        The longest title at a place wins. A name must be written like one: with a capital or a digit in it, and a
        single word with a capital of its own (or in a script without capitals), which a function word has in capitals
        alone: the WHO, but not Who. A part of a longer name, as Version 2 is of Version 2.1 and Bergen of Bergen-Sund,
        names nothing.
        """
        plain = without_accents(text)
        matches = list(_WORD.finditer(plain))
        words = [match[0] for match in matches]
        folded = [word.casefold() for word in words]
        joined = [False, *(_is_joined(plain, *pair) for pair in pairwise(matches)), False]
        """Whether a word is one name with the word before it."""
        upper = [not word[0].islower() for word in words]
        """Whether a word begins with a capital, a digit or a letter of a script without capitals."""
        mentions: dict[Name, None] = {}
        at = 0
        while at < len(words):
            names = (tuple(folded[at : at + length]) for length, _ in self._lengths.get(folded[at], ()))
            links = (n for n in names if _is_link(self._groups.get(n, ())) and not (joined[at] or joined[at + len(n)]))
            is_name = words[at][0].isalpha() and (words[at].isupper() or folded[at] not in _FUNCTION_WORDS)
            written = (n for n in links if any(upper[at : at + len(n)]) and (len(n) > 1 or is_name))
            name = next(written, None)
            if name is not None:
                mentions[name] = None
            at += len(name) if name else 1
        return [tuple(chunk.chunk_id for chunk in self._groups[name]) for name in mentions]


def names(title: str) -> set[Name]:
    """The ways to name a title in running text, as folded words.

    "Paris: History" is also "Paris" and "History", and a qualifier in parentheses at the end may be left out: "Rio
    (film)" is also "Rio".
    """
    parts = [title, *title.split(": ")]
    forms = {form for part in parts for form in (part, _QUALIFIER.sub("", part))}
    named = {tuple(word.casefold() for word in _WORD.findall(without_accents(form))) for form in forms}
    return {name for name in named if sum(map(len, name)) >= MIN_LETTERS}


def _is_joined(text: str, word: re.Match[str], following: re.Match[str]) -> bool:
    """Whether two words are one name: 2.1, AC/DC, Bergen-Sund, A100-b; but not Bergen-based, ex-Yugoslavia and
    Oslo/Bergen."""
    between, parts = text[word.end() : following.start()], (word[0], following[0])
    if between in _HYPHENS:
        return not any(part[0].islower() and len(part) > 1 for part in parts)
    if between == "/":
        return any(len(part) <= _SHORT or part.isdigit() for part in parts)
    if between in _IN_NUMBERS:
        return parts[0][-1].isdigit() and parts[1][0].isdigit()
    return between in _JOINTS


def _is_link(group: Group) -> bool:
    return 0 < len(group) <= MAX_CHUNKS


def _by_name(chunks: Iterable[TitledChunk]) -> dict[Name, list[TitledChunk]]:
    named: dict[Name, list[TitledChunk]] = defaultdict(list)
    for chunk in chunks:
        for name in names(chunk.title):
            named[name].append(chunk)
    return named


CACHED_COLLECTIONS = 64
MOST_READ_ANEW = 5000
"""Limit on changed documents; with more the whole collection is read."""


class TitleSource(Protocol):
    """The database's titles."""

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> Iterable[TitledChunk]:
        """The titles of a collection's searchable chunks, or of those of some documents; in any order.

        Asked after the versions of the collection's documents changed, for the documents whose did.
        """
        ...


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
