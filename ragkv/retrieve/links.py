"""Links between passages: a text that names another chunk's title points at that chunk."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ragkv.retrieve.sparse import without_accents

MAX_CHUNKS = 64
"""A name that more chunks share than this says nothing about any of them."""
MIN_LETTERS = 3

_WORD = re.compile(r"\w+")
_QUALIFIER = re.compile(r"(?<!\s)\s*\([^()]*\)\s*$")

Name = tuple[str, ...]


class TitleLinks:
    """The titles of one collection, ready to be found in text."""

    def __init__(self, titles: Mapping[str, Sequence[str]]) -> None:
        """`titles`: the ids of the chunks under each title."""
        named: dict[Name, dict[str, None]] = defaultdict(dict)
        for title, chunk_ids in titles.items():
            for name in names(title):
                named[name].update(dict.fromkeys(chunk_ids))
        self._chunks = {name: tuple(ids) for name, ids in named.items() if len(ids) <= MAX_CHUNKS}
        self._lengths = _lengths_by_first_word(self._chunks)

    def mentioned(self, text: str) -> list[tuple[str, ...]]:
        """For each title that the text names, in order of appearance, the ids of the chunks under it.

        The longest title at a place wins. A name must be written like one: with a capital or a digit in it, and a
        single word with a capital of its own (or in a script without capitals).
        """
        found = dict.fromkeys(self._names_in(_WORD.findall(without_accents(text))))
        return [self._chunks[name] for name in found]

    def _names_in(self, words: list[str]) -> Iterator[Name]:
        folded = [word.casefold() for word in words]
        at = 0
        while at < len(words):
            name = self._name_at(words, folded, at)
            if name is not None:
                yield name
            at += len(name) if name else 1

    def _name_at(self, words: list[str], folded: list[str], at: int) -> Name | None:
        for length in self._lengths.get(folded[at], ()):
            name = tuple(folded[at : at + length])
            if name in self._chunks and _written_as_name(words[at : at + length]):
                return name
        return None


def names(title: str) -> set[Name]:
    """The ways to name a title in running text, as folded words.

    "Paris: History" is also "Paris" and "History", and a qualifier in parentheses at the end may be left out: "Rio
    (film)" is also "Rio".
    """
    parts = [title, *title.split(": ")]
    forms = {form for part in parts for form in (part, _QUALIFIER.sub("", part))}
    found = {tuple(word.casefold() for word in _WORD.findall(without_accents(form))) for form in forms}
    return {name for name in found if sum(map(len, name)) >= MIN_LETTERS}


def _written_as_name(words: list[str]) -> bool:
    if len(words) == 1:
        return words[0][0].isalpha() and not words[0][0].islower()
    return any(not word[0].islower() for word in words)


def _lengths_by_first_word(names: Iterable[Name]) -> dict[str, tuple[int, ...]]:
    """How many words the names that start with a word have, longest first."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for name in names:
        lengths[name[0]].add(len(name))
    return {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}
