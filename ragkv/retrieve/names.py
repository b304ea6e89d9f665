"""Documents by the words of their files' names."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ragkv.retrieve.index import DocumentIds
from ragkv.retrieve.sparse import term_id, terms_told, words


class Named(NamedTuple):
    """Documents whose name has a term: how many there are in all, and those that were asked for."""

    total: int
    document_ids: DocumentIds


class DocumentNames:
    """The terms of documents' names. Not safe to share between threads."""

    def __init__(self) -> None:
        self._documents: dict[int, set[str]] = {}
        self._terms: dict[str, frozenset[int]] = {}

    def rename(self, document_id: str, name: str) -> None:
        """name: empty for a document that is no longer there."""
        terms = name_terms(name)
        for outdated_term in self._terms.pop(document_id, frozenset()) - terms:
            self._documents[outdated_term].discard(document_id)
            if not self._documents[outdated_term]:
                del self._documents[outdated_term]
        for term in terms:
            self._documents.setdefault(term, set()).add(document_id)
        if terms:
            self._terms[document_id] = terms

    def named(self, terms: Sequence[int], limit: int, document_ids: DocumentIds | None = None) -> list[Named]:
        """For each term the documents whose name has it: of these, if they are no more than `limit`."""
        named = []
        for term in terms:
            documents = self._documents.get(term, frozenset[str]())
            asked_for = documents if document_ids is None else documents & document_ids
            named.append(Named(len(documents), frozenset(asked_for) if len(asked_for) <= limit else frozenset()))
        return named


def name_terms(name: str) -> frozenset[int]:
    """Ids of the terms of a file's name."""
    return frozenset(term for word in words(name) for term in _terms_of(word))


@lru_cache(maxsize=1 << 16)
def _terms_of(word: str) -> tuple[int, ...]:
    return tuple(map(term_id, [word] if word.isdigit() else terms_told(word, {})))
