"""Text to BM25 term vectors. The index applies the inverse document frequency (Qdrant's `Modifier.IDF`).

Every text has the terms of English; a text in another language (`ragkv.retrieve.languages`) also has its words stemmed
in that language, marked as such. A question is often too short to tell its language: then it has the terms of all
languages of its script, and those that no chunk has find nothing. Scripts without spaces between words, and Korean,
give single characters and pairs of them. docs/DECISIONS.md says why.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import pairwise

import numpy as np
import snowballstemmer
import xxhash
from numpy.typing import NDArray

from ragkv.retrieve.languages import DEFAULT, LANGUAGES, STOP_WORDS, Language, Script, languages_of, script_of
from ragkv.text import normalised, ranges

ANALYSIS_VERSION = 2
"""To be raised with every change of the terms or weights of a chunk: what was indexed before is then indexed again."""

K1 = 1.2
B = 0.75
AVERAGE_TERMS = 64.0
"""Content terms of an ordinary chunk. A constant: a chunk's vector may not depend on what else is indexed."""
ALONE = (K1 + 1) / (1 + K1 * (1 - B))
"""The weight of a term in a text that is hardly longer."""
GRAM_LENGTH = 0.25
"""What a character or a pair counts in a chunk's length, beside 1 for a word."""
GRAM_WEIGHT = 0.5
"""What a character or a pair weighs in a question, beside 1 for a word."""
GUESS_WEIGHT = 0.5
"""What a word weighs in a language that the question may be written in, or in a spelling that may be another word."""

# Thai, Lao, Burmese, Khmer, kana and Han have no spaces between words; Korean words end in particles.
_GRAMS = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3005-\u3007\u3040-\u309a\u309d-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HANGUL = "\uac00-\ud7a3"

# Vowel signs of Indic scripts are marks (M), which are no word characters (\w).
_MARKS = ranges(
    code
    for code in range(0x300, 0xFE30)
    if unicodedata.category(chr(code)).startswith("M") and not re.match(f"[{_GRAMS}]", chr(code))
)
_LETTER = rf"[^\W_{_GRAMS}{_HANGUL}]"
_WORD = re.compile(rf"[{_GRAMS}]+|[{_HANGUL}]+|{_LETTER}(?:{_LETTER}|[{_MARKS}])*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_IS_RUN = re.compile(f"[{_GRAMS}{_HANGUL}]")
_CODE = re.compile(r"(?<![^\W_])[^\W_]++(?:(?:://|[._\-/:@+&=?%#~]|(?<=\d),(?=\d))[^\W_]++)++")
_IS_CODE = re.compile(r"[\d@_]|://|^www\.")
_LETTERS_OR_DIGITS = re.compile(r"[^\W\d_]+|\d+")
_THOUSANDS = re.compile(
    r"(?<![\w.,])([1-9]\d{0,2}(?:([., '’])\d{3})(?:\2\d{3}){0,4}|[1-9]\d{3,14})(?:[.,](\d{1,15}))?(?!\w)"
)

_DOTLESS = "\u0131"
_TURKISH = re.compile("[\u0131\u0130\u011e\u011f\u015e\u015f]")  # dotless i, dotted I, G with breve, S with cedilla

_UNDECOMPOSED = (("ł", "l"), ("ø", "o"), ("ø", "oe"), ("đ", "d"), ("ð", "d"), ("þ", "th"), ("æ", "ae"), ("œ", "oe"))
"""Letters that Unicode does not take apart, and what who lacks them writes. A chunk's words keep them."""
_WITH_PAIRS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa"})
_PAIRS = re.compile("(?<![aeiouq])([aou])e|(a)a")
"""What stands for such a letter, which without its accent is the pair's first; not ue in neue, bauen and quelle."""
_MIN_RESPELLED = 4

SparseVector = tuple[NDArray[np.uint32], NDArray[np.float32]]

_WORD_CHARACTERS = 64
"""A longer one is no word of a language. Remembering such would let texts fill the memory."""

_COUNT_DIGITS = 2

_stemmers = {language: snowballstemmer.stemmer(language) for language in STOP_WORDS}
_stemmer_lock = threading.Lock()  # a stemmer works on the word it holds: one thread at a time


def words(text: str) -> list[str]:
    """The words of a text in order, lower-case; a run of characters of a script that gives pairs is one word."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(normalised("NFKC", text).casefold())


def is_run(word: str) -> bool:
    """Whether a word of `words` is a run of characters of a script that gives pairs."""
    return _IS_RUN.match(word) is not None


def words_as_written(text: str) -> list[str]:
    """`words` with their capitals."""
    return _WORD.findall(normalised("NFKC", text))


def codes(text: str) -> list[str]:
    """Codes, written in one piece, which mean more than their words: versions, dates, part numbers, addresses."""
    candidates = _CODE.findall(normalised("NFKC", text).casefold())
    return [code for code in candidates if len(code) <= _WORD_CHARACTERS and _IS_CODE.search(code)]


def _respelled_codes(text: str) -> Iterator[str]:
    """Codes of letters and digits without hyphens, and with one between letters and digits: e17 and e-17, sk20931c and
    sk-20931-c. Numbers as others write their thousands and their point: 1234567, 1,234,567 and 1.234.567,00."""
    for number in _THOUSANDS.finditer(normalised("NFKC", text)):
        digits = int("".join(filter(str.isdecimal, number[1])))
        for comma, point in (",.", ".,"):
            ends = "", f"{point}{number[3] or '00'}"
            grouped = f"{digits:,}".replace(",", comma)
            yield from (f"{whole}{end}" for whole in (str(digits), grouped) for end in ends)
    for code in (*codes(text), *words(text)):
        parts = _LETTERS_OR_DIGITS.findall(code)
        if len(parts) > 1 and code[0].isalpha() and "".join(parts) == code.replace("-", ""):
            yield from (stem("".join(parts)), "-".join(parts))


def identifiers(text: str) -> list[int]:
    """Ids of the terms that may name one thing among many alike, each once: codes, also as others spell them, and words
    with a digit except for numbers below 100, which count."""
    numbered = [word for word in words(text) if any(map(str.isdigit, word))]
    names = [stem(word) for word in numbered if not (word.isdigit() and len(word) <= _COUNT_DIGITS)]
    other_forms = (form for day in dates_in(text) for form in date_numbers(day))
    return list(dict.fromkeys(map(term_id, (*codes(text), *names, *other_forms, *_respelled_codes(text)))))


def without_accents(text: str) -> str:
    """The same letters without diacritics; compatibility forms (ligatures, full width) become ordinary ones."""
    if text.isascii():
        return text
    return "".join(c for c in normalised("NFKD", text) if not unicodedata.combining(c))


def stem(word: str, language: Language = DEFAULT) -> str:
    """The Snowball stem of a lower-case word, without accents. Those of ordinary length are remembered."""
    return _known_stem(word, language) if len(word) <= _WORD_CHARACTERS else _stem(word, language)


def _stem(word: str, language: Language) -> str:
    folds = script_of(word) not in (Script.DEVANAGARI, Script.TAMIL)  # their marks are vowels
    if language == DEFAULT and folds:  # an English word has its accents from elsewhere
        word = without_accents(word)
    with _stemmer_lock:
        stemmed = str(_stemmers[language].stemWord(word))
    return without_accents(stemmed) if folds else stemmed


_known_stem = lru_cache(maxsize=1 << 17)(_stem)


def rarities(occurs_in: NDArray[np.int_], num_texts: int) -> NDArray[np.float64]:
    """ln(1 + (N - n + 0.5) / (n + 0.5)) for terms in n of N texts each, as in Qdrant."""
    return np.log1p((np.maximum(num_texts - occurs_in, 0) + 0.5) / (occurs_in + 0.5))


def term_id(term: str) -> int:
    """A term's dimension: the same in every process, 32 bits. Two terms that collide count as one."""
    return xxhash.xxh32_intdigest(term.encode("utf-8", "surrogatepass"))


def document_vectors(chunks: Sequence[str]) -> list[SparseVector]:
    """Term weights of the chunks of one document, as they are searched for, ascending by id.

    tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length)): the term frequency part of BM25 as Lucene had it
    until version 8 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section
    3.4). The other factor, ln(1 + (N - n + 0.5) / (n + 0.5)), is the index's.

    A chunk that does not tell its language is taken to be in the one that most of the others are in.
    """
    chunk_words = [words(chunk) for chunk in chunks]
    chunk_languages = [languages_of(of_chunk) for of_chunk in chunk_words]
    votes = Counter(item for languages in chunk_languages for item in languages.items())
    usual = dict(item for item, _ in reversed(votes.most_common()))
    vectors = []
    for chunk, of_chunk, told_languages in zip(chunks, chunk_words, chunk_languages, strict=True):
        languages = usual | told_languages
        grams = [gram for word in of_chunk if is_run(word) for gram in _grams(word)]
        spaced = [word for word in of_chunk if not is_run(word)]
        english = [term for word in spaced for term in _terms(word, DEFAULT)]
        own = [term for word in spaced for term in _own_terms(word, languages.get(script_of(word), DEFAULT))]
        length = max(len(english), len(own)) + GRAM_LENGTH * len(grams)
        length_norm = K1 * (1 - B + B * length / AVERAGE_TERMS)
        counts = Counter(map(term_id, (*english, *own, *grams, *codes(chunk))))
        vectors.append(_ascending({i: tf * (K1 + 1) / (tf + length_norm) for i, tf in counts.items()}))
    return vectors


def query_vector(text: str) -> SparseVector:
    """The weight of each distinct term of a question, ascending by id: 1, less for pairs and guessed languages. A date
    has the terms of its other forms, a name or a code those of its other spellings."""
    text_words = words(text)
    languages = languages_of(text_words)
    dates = list(dates_in(text))
    weights = dict.fromkeys(_respelled_codes(text), GUESS_WEIGHT)
    weights |= dict.fromkeys((*codes(text), *(form for day in dates for form in date_numbers(day))), 1.0)
    weights |= dict.fromkeys((stem(word) for day in dates for word in date_words(day)), 1.0)
    # In Turkish the capital I is that of a letter without a dot. A chunk's words are made lower-case as in English.
    turkish_forms = [word.replace(_DOTLESS, "i") for word in text_words if _DOTLESS in word]
    if languages.get(Script.LATIN) == "turkish" or _TURKISH.search(text):
        turkish_forms += words(normalised("NFC", text).replace("I", _DOTLESS).replace("İ", "i"))
    respelled = (form for word in text_words if len(word) >= _MIN_RESPELLED for form in _respelled(word))
    weights |= {stem(form): weight for form, weight in respelled}
    for word in dict.fromkeys((*text_words, *turkish_forms)):
        if is_run(word):
            weights |= dict.fromkeys(_grams(word), GRAM_WEIGHT)
            continue
        weights |= dict.fromkeys(_terms(word, DEFAULT), 1.0)
        script = script_of(word)
        if script in languages:
            weights |= dict.fromkeys(_own_terms(word, languages[script]), 1.0)
        else:
            for language in LANGUAGES.get(script, ()):
                weights |= dict.fromkeys(_own_terms(word, language), GUESS_WEIGHT)
    return _ascending({term_id(term): weight for term, weight in weights.items()})


def _respelled(word: str) -> Iterator[tuple[str, float]]:
    """A word of a question as names have it that are often written without their letters, and the other way round:
    lodz and łódź, odegard and ødegård, mueller and müller. Each form has another letter replaced, or all pairs, which
    weighs less: poet becomes pot. Stop words have none."""
    if any(word in stop_words for stop_words in STOP_WORDS.values()):
        return
    forms = {word.translate(_WITH_PAIRS): 1.0, _PAIRS.sub(r"\1\2", word): GUESS_WEIGHT}
    yield from ((form, weight) for form, weight in forms.items() if form != word)
    for letter, plain in _UNDECOMPOSED:
        if letter in word:
            yield word.replace(letter, plain), 1.0
        yield from ((f"{word[: m.start()]}{letter}{word[m.end() :]}", 1.0) for m in re.finditer(plain, word))


def terms_told(word: str, languages: Mapping[Script, Language]) -> Iterator[str]:
    """The terms of a lower-case word where the languages are told: its stem, of a stop word none; of a run its
    pairs."""
    if is_run(word):
        yield from _pairs(word) if len(word) > 1 else word
    else:
        yield from _terms(word, languages.get(script_of(word), DEFAULT))


def _terms(word: str, language: Language) -> Iterator[str]:
    """The stem of a word, unless it is a stop word."""
    if word not in STOP_WORDS[language]:
        yield stem(word, language)


def _own_terms(word: str, language: Language) -> Iterator[str]:
    """The term that a word adds to the English one: never that of a word in another language."""
    if language != DEFAULT and len(word) <= _WORD_CHARACTERS:
        yield from (f"{language} {stemmed}" for stemmed in _terms(word, language))


def _grams(run: str) -> Iterator[str]:
    """Characters, and pairs of neighbours."""
    yield from run
    yield from _pairs(run)


def _pairs(run: str) -> Iterator[str]:
    return map("".join, pairwise(run))


def _ascending(weights: dict[int, float]) -> SparseVector:
    indices = sorted(weights)
    return np.array(indices, dtype=np.uint32), np.array([weights[i] for i in indices], dtype=np.float32)


_MONTHS = (  # English, German, French, Spanish, without accents
    "january januar janvier enero",
    "february februar fevrier febrero",
    "march marz mars marzo",
    "april avril abril",
    "may mai mayo",
    "june juni juin junio",
    "july juli juillet julio",
    "august aout agosto",
    "september septembre septiembre",
    "october oktober octobre octubre",
    "november novembre noviembre",
    "december dezember decembre diciembre",
)
_NUMBER_OF = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names.split()}
_MONTH = "|".join(_NUMBER_OF)
_DATE = re.compile(
    rf"""(?<!\w)(?:
      (?P<y1>\d{{4}})[-/.](?P<m1>\d{{1,2}})[-/.](?P<d1>\d{{1,2}})
    | (?P<d2>\d{{1,2}})\.\ ?(?P<m2>\d{{1,2}})\.\ ?(?P<y2>\d{{4}})
    | (?P<d3>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\ (?:of\ |de\ )?(?P<m3>{_MONTH})(?:\ de|,)?\ (?P<y3>\d{{4}})
    | (?P<m4>{_MONTH})\ (?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?\ (?P<y4>\d{{4}})
    )(?![\w-])""",
    re.VERBOSE,
)


def dates_in(text: str) -> Iterator[date]:
    """The dates of a question, for their other forms: documents keep their terms as they are, so that nothing is
    indexed again. One whose order of day and month is not told, as in 5/3/2026, is none."""
    for match in _DATE.finditer(without_accents(text).casefold()):
        year, month, day = (next(filter(None, match.group(*(f"{part}{i}" for i in range(1, 5))))) for part in "ymd")
        try:
            yield date(int(year), _NUMBER_OF.get(month) or int(month), int(day))
        except ValueError:  # 2026-13-40
            continue


def date_numbers(day: date) -> list[str]:
    """The forms of a date in numbers."""
    return [
        f"{day:%Y-%m-%d}",
        f"{day.day:02}.{day.month:02}.{day.year}",
        f"{day.day}.{day.month}.{day.year}",
        f"{day.day:02}/{day.month:02}/{day.year}",
        f"{day.month:02}/{day.day:02}/{day.year}",
        f"{day:%Y/%m/%d}",
    ]


def date_words(day: date) -> list[str]:
    """The words of a date in words."""
    return [*_MONTHS[day.month - 1].split(), str(day.day), str(day.year)]
