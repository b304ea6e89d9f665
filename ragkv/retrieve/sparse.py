"""Text to BM25 term vectors. The index multiplies in the inverse document frequency (Qdrant's `Modifier.IDF`)."""

import re
import threading
import unicodedata
from collections import Counter
from functools import lru_cache

import numpy as np
import snowballstemmer
import xxhash
from numpy.typing import NDArray

from ragkv.normal_form import normalised

K1 = 1.2
B = 0.75
AVERAGE_TERMS = 64.0
"""Content terms of an ordinary chunk. A constant: a chunk's vector may not depend on what else is indexed."""

STOP_WORDS = frozenset(
    """a about above after again against all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her here hers
    herself him himself his how i if in into is it its itself just me more most my myself no nor not now of off on
    once only or other our ours ourselves out over own same she should so some such than that the their theirs them
    themselves then there these they this those through to too under until up very was we were what when where which
    while who whom whose why will with would you your yours yourself yourselves s t d ll m re ve""".split()  # noqa: SIM905 - a list of 140 quoted words is harder to read
)

# A word is a run of letters and digits; scripts written without spaces give one term per character.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

SparseVector = tuple[NDArray[np.uint32], NDArray[np.float32]]

_WORD_CHARACTERS = 64
"""A longer one is no word of a language. Remembering such would let texts fill the memory."""

_stemmer = snowballstemmer.stemmer("english")
_stemmer_lock = threading.Lock()  # a stemmer works on the word it holds: one thread at a time


def words(text: str) -> list[str]:
    """The words of a text in order, lower-case and without accents."""
    return _WORD.findall(without_accents(text).casefold())


def without_accents(text: str) -> str:
    """The same letters without diacritics; compatibility forms (ligatures, full width) become ordinary ones."""
    if text.isascii():
        return text
    return "".join(c for c in normalised("NFKD", text) if not unicodedata.combining(c))


def terms(text: str) -> list[str]:
    """The stems of a text's words in order, without stop words."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


def stem(word: str) -> str:
    """The Snowball (English) stem of a lower-case word. Those of ordinary length are remembered."""
    return _known_stem(word) if len(word) <= _WORD_CHARACTERS else _stem(word)


@lru_cache(maxsize=1 << 17)
def _known_stem(word: str) -> str:
    return _stem(word)


def _stem(word: str) -> str:
    with _stemmer_lock:
        return str(_stemmer.stemWord(word))


def term_id(term: str) -> int:
    """A term's dimension: the same in every process, 32 bits. Two terms that collide count as one."""
    return xxhash.xxh32_intdigest(term.encode("utf-8", "surrogatepass"))


def document_vector(text: str) -> SparseVector:
    """Term weights of a text that is searched for, ascending by id.

    tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length)): the term frequency part of BM25 as Lucene had it
    until version 8 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section
    3.4). The other factor, ln(1 + (N - n + 0.5) / (n + 0.5)), is the index's.
    """
    counts = Counter(term_id(term) for term in terms(text))
    length_norm = K1 * (1 - B + B * counts.total() / AVERAGE_TERMS)
    return _ascending({i: tf * (K1 + 1) / (tf + length_norm) for i, tf in counts.items()})


def query_vector(text: str) -> SparseVector:
    """Weight 1 for each distinct term of a question, ascending by id."""
    return _ascending({term_id(term): 1.0 for term in terms(text)})


def _ascending(weights: dict[int, float]) -> SparseVector:
    indices = sorted(weights)
    return np.array(indices, dtype=np.uint32), np.array([weights[i] for i in indices], dtype=np.float32)
