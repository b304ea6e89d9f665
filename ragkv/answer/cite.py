"""Citations: the passages that support an answer, found by shared words, so that readers can check each one.

A statement is first matched with a sentence that says what is new in it (what the question did not already say), then
with sentences that lead there: those that name the title of a cited passage, or the answer, beside something of the
question that is not accounted for yet. Where the answer says nothing new ("yes", or one of two things compared), the
sentences are those about the things that the question names.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from ragkv.answer.question import Citation
from ragkv.answer.sentences import Place, sentences, statements
from ragkv.chunk import Passage
from ragkv.retrieve import sparse
from ragkv.retrieve.languages import Language, Script, languages_of
from ragkv.retrieve.links import Name, names

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
PAIR = 0.5
"""Weight of a pair of characters, in Korean and scripts without spaces: a word is several pairs."""
POLAR = frozenset(("yes", "no", "true", "fals"))
ANSWER = "answer"
"""Of "The answer is: ...", which says nothing that a passage could support."""
WORK = 2_000_000
"""Terms of sentences that are looked at for one answer, SENTENCE_WORK more for each sentence: about a second. Forty
statements over 200 passages of 256 tokens take as much."""
SENTENCE_WORK = 8

_COMMA_OF_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_ZEROS_BEHIND_POINT = re.compile(r"(?<=\d)[.,]00?(?![.,]?\d)")
"""Of 229.00, which an answer has as 229."""
_POINT = re.compile(r"(?<=\d)[.,:](?=\d)")
"""Of 2.50, 3,5 and 14:30, which are one number each."""
_IN_ONE = "\u02b9"
"""A letter of no word, in place of a point."""
_CUT_NUMBER = re.compile(r"(?<![\d.,:/-])([.,:/-]*)\d[\d.,:/-]*\Z")
"""Sought where such signs begin alone: from each digit of a long run it would be followed to the run's end."""
_MARK_OF_REFERENCE = re.compile(r"\[\d{1,3}\]")

_Languages = Mapping[Script, Language]
Phrase = str
"""Folded words with a space around each, so that a phrase occurs in another, word for word, where its characters do."""


class _Weights:
    """Weight of each term: numbers and names more than words, rare terms more than common ones."""

    def __init__(self, of: Mapping[str, float]) -> None:
        self.of = of
        self._total = math.fsum(of.values())

    def share(self, terms: AbstractSet[str]) -> float:
        """The weight of the terms that are among `terms`, as a share of all; 0 of nothing."""
        return math.fsum(self.of[term] for term in self.of.keys() & terms) / self._total if self._total else 0.0


@dataclass(frozen=True, slots=True)
class _Title:
    """A passage's title: all its words, and the ways to name it in running text."""

    words: Phrase
    terms: frozenset[str]
    names: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a passage. `terms` are its own, `all_terms` also those of the passage's title."""

    passage: Passage
    place: Place
    words: Phrase
    terms: frozenset[str]
    all_terms: frozenset[str]
    title: _Title


@dataclass(frozen=True, slots=True)
class _Statement:
    """`new`: its terms that the question does not have; `strong`: those of them that are names or numbers."""

    words: Phrase
    new: _Weights
    strong: frozenset[str]
    question: _Weights


@dataclass(frozen=True, slots=True)
class _Cited:
    """The sentences cited for a statement so far, and the terms of all of them."""

    sentences: tuple[_Sentence, ...] = ()
    covered: frozenset[str] = frozenset()
    all_terms: frozenset[str] = frozenset()

    def and_also(self, sentence: _Sentence) -> "_Cited":
        return _Cited((*self.sentences, sentence), self.covered | sentence.terms, self.all_terms | sentence.all_terms)


_Added = Callable[[_Cited, _Sentence], float]
"""Support that a sentence adds to those cited so far; 0 when it is not enough."""


def cite(answer: str, question: str, passages: Sequence[Passage], *, is_cut: bool = False) -> tuple[Citation, ...]:
    """The citations of each statement of the answer in order, the strongest first, at most MAX_PER_STATEMENT of each.

    A quote is one sentence of a passage, with its characters in the document. A statement that no passage supports has
    no citation, and neither have the last ones of an answer that is too long for WORK, nor a number at the end of one
    that `is_cut`, whose next digits nobody knows. Pure: the same arguments give the same citations.
    """
    if is_cut:
        answer = _CUT_NUMBER.sub(r"\1", answer)
    by_score = sorted(passages, key=lambda passage: -passage.score)
    # One language for each script, so that a word has the same stem wherever it stands: that of answer and question if
    # they tell it, else that of the passages.
    languages = languages_of(word for passage in by_score for word in sparse.words(passage.chunk.text))
    languages |= languages_of(sparse.words(f"{question}\n{answer}"))
    candidates = [sentence for passage in by_score for sentence in _sentences_of(passage, languages)]
    # Rarity is 1 for a term that no or one sentence has, towards 0 for one that all have.
    counts = Counter(term for sentence in candidates for term in sentence.all_terms)
    most = math.log1p(len(candidates))
    rarity = {term: math.log1p(len(candidates) / count) / most for term, count in counts.items()}
    strengths = _strengths(question, languages)
    question_weights = _Weights({term: strength * rarity.get(term, 1.0) for term, strength in strengths.items()})
    work = sum(SENTENCE_WORK + len(sentence.all_terms) for sentence in candidates)  # that one statement takes
    affordable = max(WORK // work, 1) if work else 0
    return tuple(
        _citation(place, sentence)
        for place in statements(answer)[:affordable]
        for sentence in _support(answer[slice(*place)], question_weights, candidates, rarity, languages).sentences
    )


def _support(
    text: str,
    question: _Weights,
    candidates: Sequence[_Sentence],
    rarity: Mapping[str, float],
    languages: _Languages,
) -> _Cited:
    strengths = _strengths(text, languages)
    covered = {term: strength * rarity.get(term, 1.0) for term, strength in strengths.items() if term != ANSWER}
    said = question.of.keys() | POLAR  # no passage says "yes" to a question
    if covered and covered.keys() <= said:
        return _extend(_Cited(), candidates, partial(_accounted, question=question))
    new = {term: weight for term, weight in covered.items() if term not in said}
    strong = frozenset(term for term, strength in strengths.items() if strength > WORD and term in new)
    statement = _Statement(_words(text), _Weights(new), strong, question)
    strongest = _best(candidates, partial(_support_score, statement=statement))
    if strongest is None:
        return _Cited()
    return _extend(_Cited().and_also(strongest), candidates, partial(_added, statement=statement))


def _support_score(sentence: _Sentence, statement: _Statement) -> float:
    """0 when the sentence does not say what is new in the statement."""
    exact = _holds(sentence.words, statement.words)
    support = 1.0 if exact else statement.new.share(sentence.terms)
    if support < (MIN_SUPPORT_SHORT if len(statement.new.of) <= SHORT_TERMS else MIN_SUPPORT_LONG):
        return 0.0
    about_question = statement.question.share(sentence.all_terms)
    num_new = len(statement.new.of.keys() & sentence.terms)
    is_telling = bool(statement.strong & sentence.terms) or num_new >= SHORT_TERMS
    return support + 0.5 * exact + about_question if is_telling or about_question >= MIN_ASKED_BY_WEAK_MATCH else 0.0


def _extend(cited: _Cited, candidates: Sequence[_Sentence], added: _Added) -> _Cited:
    """With the sentences of other passages that add most to those cited, as long as they add anything."""
    while len(cited.sentences) < MAX_PER_STATEMENT:
        chunks = {sentence.passage.chunk.id for sentence in cited.sentences}
        uncited = [sentence for sentence in candidates if sentence.passage.chunk.id not in chunks]
        best = _best(uncited, partial(added, cited))
        if best is None:
            break
        cited = cited.and_also(best)
    return cited


def _added(cited: _Cited, sentence: _Sentence, statement: _Statement) -> float:
    """Support added to the cited: more of the statement, or something of the question if it leads to them: if it names
    a cited passage's title or the answer, or is about the answer, or about what a cited one names."""
    added_news = statement.new.share(sentence.terms - cited.covered)
    added_question = statement.question.share(sentence.all_terms - cited.all_terms)
    is_support = added_news >= MIN_ADDED or (
        added_question >= MIN_ADDED
        and (
            _holds(sentence.words, statement.words)
            or _holds(sentence.title.words, statement.words)
            or any(_holds(other.words, name) for other in cited.sentences for name in sentence.title.names)
            or any(_holds(sentence.words, name) for other in cited.sentences for name in other.title.names)
        )
    )
    return added_news + added_question if is_support else 0.0


def _accounted(cited: _Cited, sentence: _Sentence, question: _Weights) -> float:
    """Terms of the question added to those that the cited sentences account for."""
    added = question.share(sentence.all_terms - cited.all_terms)
    return added + question.share(sentence.terms) if added >= (MIN_ADDED if cited.sentences else MIN_ABOUT) else 0.0


def _best(candidates: Sequence[_Sentence], score: Callable[[_Sentence], float]) -> _Sentence | None:
    """The highest score above 0; the earlier candidate, of the passage retrieval liked better, where two are equal."""
    best = max(candidates, key=score, default=None)
    return best if best is not None and score(best) > 0 else None


def _sentences_of(passage: Passage, languages: _Languages) -> list[_Sentence]:
    title = _Title(
        _words(passage.chunk.title),
        _terms(passage.chunk.title, languages),
        tuple(_phrase(_folded(" ".join(name))) for name in names(passage.chunk.title)),
    )
    in_passage = []
    for place in sentences(passage.chunk.text):
        text = passage.chunk.text[slice(*place)]
        terms = _terms(text, languages)
        in_passage.append(_Sentence(passage, place, _words(text), terms, terms | title.terms, title))
    return in_passage


def _citation(answer: Place, sentence: _Sentence) -> Citation:
    chunk = sentence.passage.chunk
    start, end = sentence.place
    return Citation(
        answer_start=answer[0],
        answer_end=answer[1],
        chunk_id=chunk.id,
        document_id=chunk.document_id,
        title=chunk.title,
        page=chunk.page_at(start),
        start=chunk.start + start,
        end=chunk.start + end,
        quote=chunk.text[start:end],
        page_label=chunk.page_label_at(start),
        outdated=chunk.outdated,
    )


def _strengths(text: str, languages: _Languages) -> dict[str, float]:
    """The terms of a text as numbers, names (written with a capital), words or pairs, whichever is strongest."""
    strengths: dict[str, float] = {}
    for word in _raw_words(text):
        folded = word.casefold()
        strength = NAME if word[0].isupper() else PAIR if sparse.is_run(word) else WORD
        if any(letter.isdigit() for letter in word):
            strength = NUMBER
        for term in (folded,) if folded in POLAR else sparse.terms_told(folded, languages):
            strengths[term] = max(strengths.get(term, 0.0), strength)
    return strengths


def _terms(text: str, languages: _Languages) -> frozenset[str]:
    return frozenset(_strengths(text, languages))


def _words(text: str) -> Phrase:
    """All words folded, without an article in front."""
    words = _folded(text)
    return _phrase(words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words)


def _folded(text: str) -> Name:
    """Words without accents; each character of a script without spaces is one."""
    return tuple(
        part
        for word in _raw_words(text)
        for part in (word if sparse.is_run(word) else (sparse.without_accents(word.casefold()),))
    )


def _phrase(words: Name) -> Phrase:
    return f" {' '.join(words)} " if words else ""


def _raw_words(text: str) -> list[str]:
    plain = _ZEROS_BEHIND_POINT.sub("", _MARK_OF_REFERENCE.sub(" ", _COMMA_OF_THOUSANDS.sub("", text)))
    return sparse.words_as_written(_POINT.sub(_IN_ONE, plain))


def _holds(words: Phrase, phrase: Phrase) -> bool:
    """Whether the phrase occurs in the words, word for word. An empty one occurs nowhere."""
    return bool(phrase) and phrase in words
