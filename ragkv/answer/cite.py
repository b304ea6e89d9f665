"""Which passages an answer rests on: by the words they share, so that every citation can be checked by eye.

A statement is first matched with a sentence that says what is new in it (what the question did not already say), then
with sentences that lead there: those that name the title of a cited passage, or the answer, beside something of the
question that is not accounted for yet. Where the answer says nothing new ("yes", or one of two things compared), the
sentences are those about the things that the question names.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ragkv.answer.ask import Citation
from ragkv.answer.sentences import Place, sentences
from ragkv.chunk import Passage
from ragkv.retrieve.links import Name, names
from ragkv.retrieve.sparse import STOP_WORDS, stem, without_accents

MAX_PER_STATEMENT = 3
SHORT_TERMS = 4
MIN_SUPPORT_SHORT, MIN_SUPPORT_LONG = 0.6, 0.35
"""Share of what is new in a statement of at most, or more than, SHORT_TERMS new terms that one sentence must say."""
MIN_ADDED = 0.2
"""Share of the statement's news, or of the question, that a further sentence must add."""
MIN_ABOUT = 0.3
"""Share of the question that a sentence must account for when the answer says nothing new."""
MIN_ASKED_BY_WEAK_MATCH = 0.15
"""Share of the question beside a common word, without which that word supports nothing."""
NUMBER, NAME, WORD = 3.0, 2.0, 1.0
POLAR = frozenset(("yes", "no", "true", "fals"))

_WORD = re.compile(r"[^\W_]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")

Weights = Mapping[str, float]
"""How much each term counts: numbers and names more than words, rare terms more than common ones."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a passage. `terms` are its own, `known` also those of the passage's title."""

    passage: Passage
    place: Place
    words: Name
    terms: frozenset[str]
    known: frozenset[str]
    title: Name


@dataclass(frozen=True, slots=True)
class _Statement:
    """`new`: its terms that the question does not have; `strong`: those of them that are names or numbers."""

    words: Name
    new: Weights
    strong: frozenset[str]
    asked: Weights

    @property
    def min_support(self) -> float:
        return MIN_SUPPORT_SHORT if len(self.new) <= SHORT_TERMS else MIN_SUPPORT_LONG


class _Adds(Protocol):
    """What a sentence adds to those cited so far; 0 when it is not enough."""

    def __call__(self, sentence: _Sentence, *, cited: Sequence[_Sentence]) -> float: ...


def cite(answer: str, question: str, passages: Sequence[Passage]) -> tuple[Citation, ...]:
    """The citations of each statement of the answer in order, the strongest first, at most MAX_PER_STATEMENT of each.

    A quote is one sentence of a passage, with its characters in the document. A statement that no passage supports has
    no citation. Pure: the same arguments give the same citations.
    """
    by_score = sorted(passages, key=lambda passage: -passage.score)
    candidates = [sentence for passage in by_score for sentence in _sentences_of(passage)]
    rarity = _rarity(candidates)
    asked = _weights(question, rarity)
    return tuple(
        _citation(place, sentence)
        for place in sentences(answer)
        for sentence in _support(answer[slice(*place)], asked, candidates, rarity)
    )


def _support(text: str, asked: Weights, candidates: Sequence[_Sentence], rarity: Weights) -> list[_Sentence]:
    said = _weights(text, rarity)
    if said and said.keys() <= asked.keys() | POLAR:
        return _extend([], candidates, partial(_accounted, asked=asked))
    new = {term: weight for term, weight in said.items() if term not in asked}
    strong = frozenset(term for term, strength in _strengths(text).items() if strength > WORD and term in new)
    statement = _Statement(_words(text), new, strong, asked)
    first = _best(candidates, partial(_support_score, statement=statement))
    return [] if first is None else _extend([first], candidates, partial(_added, statement=statement))


def _support_score(sentence: _Sentence, statement: _Statement) -> float:
    """0 when the sentence does not say what is new in the statement."""
    exact = _holds(sentence.words, statement.words)
    support = 1.0 if exact else _share(statement.new, sentence.terms)
    asked = _share(statement.asked, sentence.known)
    if support < statement.min_support or not (_is_telling(sentence, statement) or asked >= MIN_ASKED_BY_WEAK_MATCH):
        return 0.0
    return support + 0.5 * exact + asked


def _is_telling(sentence: _Sentence, statement: _Statement) -> bool:
    return bool(statement.strong & sentence.terms) or len(statement.new.keys() & sentence.terms) >= SHORT_TERMS


def _extend(cited: list[_Sentence], candidates: Sequence[_Sentence], added: _Adds) -> list[_Sentence]:
    """With the sentences of other passages that add most to those cited, as long as they add anything."""
    while len(cited) < MAX_PER_STATEMENT:
        passages = [sentence.passage for sentence in cited]
        others = [sentence for sentence in candidates if sentence.passage not in passages]
        best = _best(others, partial(added, cited=cited))
        if best is None:
            break
        cited = [*cited, best]
    return cited


def _added(sentence: _Sentence, cited: Sequence[_Sentence], statement: _Statement) -> float:
    """What it adds to the cited: more of the statement, or something of the question if it leads to them."""
    said = frozenset[str]().union(*(other.terms for other in cited))
    known = frozenset[str]().union(*(other.known for other in cited))
    added_news = _share(statement.new, sentence.terms - said)
    added_question = _share(statement.asked, sentence.known - known)
    leads_there = added_question >= MIN_ADDED and _leads_to(sentence, cited, statement)
    return added_news + added_question if added_news >= MIN_ADDED or leads_there else 0.0


def _leads_to(sentence: _Sentence, cited: Sequence[_Sentence], statement: _Statement) -> bool:
    """Whether it names a cited passage's title or the answer, or is about the answer, or about what a cited one names."""
    if _holds(sentence.words, statement.words) or _holds(sentence.title, statement.words):
        return True
    own = names(sentence.passage.chunk.title)
    return any(
        any(_holds(sentence.words, name) for name in names(other.passage.chunk.title))
        or any(_holds(other.words, name) for name in own)
        for other in cited
    )


def _accounted(sentence: _Sentence, cited: Sequence[_Sentence], asked: Weights) -> float:
    """What it adds to the part of the question that the cited account for."""
    known = frozenset[str]().union(*(other.known for other in cited))
    added = _share(asked, sentence.known - known)
    return added + _share(asked, sentence.terms) if added >= (MIN_ADDED if cited else MIN_ABOUT) else 0.0


def _best(candidates: Sequence[_Sentence], score: Callable[[_Sentence], float]) -> _Sentence | None:
    """The highest score above 0; the earlier candidate, of the passage retrieval liked better, where two are equal."""
    best = max(candidates, key=score, default=None)
    return best if best is not None and score(best) > 0 else None


def _sentences_of(passage: Passage) -> list[_Sentence]:
    title = _terms(passage.chunk.title)
    title_words = _words(passage.chunk.title)
    found = []
    for place in sentences(passage.chunk.text):
        text = passage.chunk.text[slice(*place)]
        terms = _terms(text)
        found.append(_Sentence(passage, place, _words(text), terms, terms | title, title_words))
    return found


def _citation(answer: Place, sentence: _Sentence) -> Citation:
    chunk = sentence.passage.chunk
    start, end = sentence.place
    return Citation(
        answer_start=answer[0],
        answer_end=answer[1],
        chunk_id=chunk.id,
        document_id=chunk.document_id,
        title=chunk.title,
        page=chunk.page,
        start=chunk.start + start,
        end=chunk.start + end,
        quote=chunk.text[start:end],
    )


def _rarity(candidates: Sequence[_Sentence]) -> Weights:
    """1 for a term that no or one sentence has, towards 0 for one that all have."""
    counts = Counter(term for sentence in candidates for term in sentence.known)
    most = math.log1p(len(candidates))
    return {term: math.log1p(len(candidates) / count) / most for term, count in counts.items()}


def _weights(text: str, rarity: Weights) -> dict[str, float]:
    return {term: strength * rarity.get(term, 1.0) for term, strength in _strengths(text).items()}


def _strengths(text: str) -> dict[str, float]:
    """The terms of a text as numbers, names (written with a capital) or words, whichever is strongest."""
    strengths: dict[str, float] = {}
    for word in _raw_words(text):
        if word.casefold() not in STOP_WORDS or word.casefold() in POLAR:
            term = stem(word.casefold())
            strengths[term] = max(strengths.get(term, 0.0), _strength(word))
    return strengths


def _strength(word: str) -> float:
    if any(letter.isdigit() for letter in word):
        return NUMBER
    return NAME if word[0].isupper() else WORD


def _terms(text: str) -> frozenset[str]:
    return frozenset(_strengths(text))


def _words(text: str) -> Name:
    """All words folded, without an article in front."""
    words = tuple(word.casefold() for word in _raw_words(text))
    return words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words


def _raw_words(text: str) -> list[str]:
    return _WORD.findall(_THOUSANDS.sub("", without_accents(text)))


def _holds(words: Name, phrase: Name) -> bool:
    """Whether the phrase occurs in the words, word for word."""
    if not phrase:
        return False
    return any(words[at : at + len(phrase)] == phrase for at in range(len(words) - len(phrase) + 1))


def _share(weights: Weights, terms: frozenset[str]) -> float:
    """The weight of the terms that are among `terms`, as a share of all; 0 of nothing."""
    total = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in terms) / total if total else 0.0
