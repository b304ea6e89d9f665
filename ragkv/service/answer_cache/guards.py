"""Guards of the answer cache: which questions a kept answer may serve, beyond vector similarity.

`differ_in_one_word`: the same question but for one word in the place of another ("increases", "decreases") asks for
something else, whatever the words: vectors tell opposites from synonyms badly. No list is needed for that.

`same_deciding_words`: "Who won in 1998?" and "Who won in 1999?" have nearly the same vector. So do questions that
differ in a name, in a "not", in "when" or "where", or in who did what to whom; and accents, vowel signs and emoji are
nothing to some encoders. The words that decide such things must be the same, in the same order. Deciding words are
recognised in English, German, French and Spanish, in all their forms. In languages without capital letters every word
decides: an answer serves there for the very same words alone. The lists are in `guards.toml`.

`is_time_bound`: no earlier answer serves a question whose answer depends on when it is asked. Words of English, German,
French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese and Japanese; a question in another language is not
recognised. A word too many only costs a second answer; a word too few serves an old one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ragkv.retrieve import sparse
from ragkv.retrieve.languages import languages_of
from ragkv.retrieve.sparse import stem, without_accents
from ragkv.text import normalised, ranges

# Vowel signs and tones of many scripts are marks (M), which are no word characters (\w).
_MARKS = ranges(code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)).startswith("M"))
_SYMBOLS = "#%&*@^" + ranges(
    code for code in range(0x20, 0x1FC00) if unicodedata.category(chr(code)) in ("Sc", "Sm", "So")
)
_LETTERS = rf"\w[\w{_MARKS}]*"
_SYMBOL = re.compile(f"[{_SYMBOLS}]")
_WORD = re.compile(rf"{_LETTERS}(?:[.,:/'\-]{_LETTERS})*|[{_SYMBOLS}]")
# Of bounded length: a mark that opens and is never closed must not be looked for to the end of the text, once for each.
_QUOTED = re.compile(r"[\"“”„«»]([^\"“”«»\n]{1,200})[\"“”«»]|(?<!\w)['‘](.{1,200}?)['’](?!\w)")
_SENTENCE_END = re.compile(r"[.?!:;]\s+$")


class _WordLists(msgspec.Struct, frozen=True):
    """guards.toml; tables by language."""

    negating: str
    time_signs: str
    deciding: dict[str, str]
    openings: dict[str, str]
    time_words: dict[str, str]
    time_phrases: dict[str, str]


def _words_of(lists: Iterable[str]) -> frozenset[str]:
    return frozenset(" ".join(lists).casefold().split())


_LISTS = msgspec.toml.decode((Path(__file__).parent / "guards.toml").read_bytes(), type=_WordLists)
_NEGATING = _LISTS.negating.split()
_DECIDING = _words_of(_LISTS.deciding.values())
_DECIDING_STEMS = {
    language: frozenset(stem(word, language) for word in _words_of([words]))
    for language, words in _LISTS.deciding.items()
}
_OPENINGS = _words_of(_LISTS.openings.values()) | _DECIDING
_TIME_WORDS = _words_of(_LISTS.time_words.values())
_TIME_PHRASES = re.compile(rf"\b({'|'.join(_LISTS.time_phrases.values())})\b", re.VERBOSE)
_TIME_SIGNS = re.compile("|".join(_LISTS.time_signs.split()))


def may_share_answer(left: str, right: str) -> bool:
    """Whether the answer to one question may serve the other, if their meaning is the same by their vectors."""
    return same_deciding_words(left, right) and not differ_in_one_word(left, right)


def same_deciding_words(left: str, right: str) -> bool:
    """Whether numbers, symbols, names, quoted text, deciding words and words with an opposite among these, or with
    other accents, are the same in both, in the same order."""
    left_words, right_words = _words(left), _words(right)
    deciding = {word for word, is_name in (*left_words, *right_words) if is_name or _decides(word)}
    words = {word for word, _ in (*left_words, *right_words)}
    opposites = [(word, negating + word) for word in words for negating in _NEGATING]
    opposites += [(word, f"{word.removesuffix('ful')}less") for word in words]
    opposites += [(word, word[:-2] + "ee") for word in words]  # lessor, lessee
    deciding |= {word for pair in opposites if words.issuperset(pair) for word in pair}
    spellings = Counter(map(without_accents, words))  # of words that differ in accents alone there is one
    deciding |= {word for word in words if spellings[without_accents(word)] > 1}
    return [word for word, _ in left_words if word in deciding] == [word for word, _ in right_words if word in deciding]


def differ_in_one_word(left: str, right: str) -> bool:
    """Whether each question has one word that the other lacks, and all others in common. Forms of a word are one word,
    and function words are none."""
    left_terms, right_terms = _terms(left), _terms(right)
    return (left_terms - right_terms).total() == (right_terms - left_terms).total() == 1


def _terms(question: str) -> Counter[str]:
    words = sparse.words(question)
    languages = languages_of(words)
    return Counter(term for word in words for term in sparse.terms_told(word, languages))


def _decides(word: str) -> bool:
    has_digit = any(map(str.isdigit, word))
    has_uncased = any(sign.isalpha() and sign.lower() == sign.upper() for sign in word)  # scripts without capitals
    return (
        has_digit
        or has_uncased
        or bool(_SYMBOL.match(word))
        or word in _DECIDING
        or word.endswith("n't")
        or any(stem(word, language) in stems for language, stems in _DECIDING_STEMS.items())  # increases, for increase
    )


def _words(question: str) -> list[tuple[str, bool]]:
    """Each word in lower case, and whether it is a name: written with a capital letter, or quoted."""
    text = normalised("NFKC", question).replace("’", "'")
    quotes, end = _Quotes(text), None
    words = []
    for word in _WORD.finditer(text):
        begins = end is None or _SENTENCE_END.search(text, end, word.start()) is not None
        has_capital = any(sign.isupper() or sign.istitle() for sign in word.group())
        opens_sentence = begins and word.group().casefold() in _OPENINGS
        is_name = (has_capital and not opens_sentence) or quotes.reach(word.start())
        words.append((word.group().casefold().removesuffix("'s"), is_name))
        end = word.end()
    return words


class _Quotes:
    """The quoted stretches of a text, passed through once from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._spans: Iterator[tuple[int, int]] = (match.span() for match in _QUOTED.finditer(text))
        self._span = next(self._spans, None)

    def reach(self, at: int) -> bool:
        """Whether a place is quoted. Places come in ascending order."""
        while self._span is not None and self._span[1] <= at:
            self._span = next(self._spans, None)
        return self._span is not None and self._span[0] <= at


def is_time_bound(question: str) -> bool:
    """Whether the question names a moment that moves on, like today, or the latest of something."""
    text = " ".join(normalised("NFC", question).casefold().replace("’", "'").split())
    words = re.findall(r"\w+(?:'\w+)*", text)
    return (
        not _TIME_WORDS.isdisjoint(words)
        or _TIME_PHRASES.search(text) is not None
        or _TIME_SIGNS.search(text) is not None
    )
