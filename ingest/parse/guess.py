"""Guess the encoding of non-Latin text from its bytes; no guess if a second encoding comes close.

charset-normalizer measures, the thresholds here decide. Latin scripts are left out: their code pages differ in a few
letters, which no measure tells apart.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from charset_normalizer import from_bytes

_LEAST_WIDE_BYTES = 150
_SAMPLE_BYTES = 16 * 1024
_SEARCHED_BYTES = 4 * 1024 * 1024
_MOST_MESS = 0.1
_NEAR_MESS, _NEAR_FIT = 0.05, 0.85
# A word with a byte beyond ASCII. Bytes below 0x30 end it: none of them is part of a longer character in any encoding
# here.
_WIDE_WORD = re.compile(rb"(?<![0-\xff])[0-\x7f]*+[\x80-\xff][0-\xff]*+")
_WIDE_RUN = re.compile(rb"[\x80-\xff]{4,}")
_WIDE = bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class Reading:
    """A sample as text in one encoding. `mess`: share of characters that do not go together; `fit`: how well the
    letters fit the language, from 1 on well enough."""

    encoding: str
    text: str
    mess: float
    fit: float

    @property
    def num_letters(self) -> int:
        return sum(map(str.isalpha, self.text))


def guess_encoding(body: bytes) -> str | None:
    """The encoding of a text in Cyrillic, Greek, Hebrew, Arabic, Thai, Chinese, Japanese or Korean, or None in
    doubt."""
    sample = _sample(body)
    if num_wide(sample) < _LEAST_WIDE_BYTES:
        return None
    readings: list[Reading] = []
    for family in _FAMILIES:
        of_family = [reading for encoding, least in family.items() if (reading := _measure(sample, encoding, least))]
        if of_family:  # its encodings differ in a few places, where the wrong one has signs instead of letters
            readings.append(max(of_family, key=lambda reading: reading.num_letters))
    best = max(readings, key=lambda reading: reading.fit, default=None)
    if best is None or best.fit < 1 or best.mess > _MOST_MESS:
        return None
    # A mixture of several languages' Cyrillic alphabets shows another code page.
    beyond_russian = {c for c in best.text.lower() if "\u0400" <= c <= "\u04ff"}.difference(_RUSSIAN)
    is_mixed = bool(beyond_russian) and not any(beyond_russian.issubset(letters) for letters in _BEYOND_RUSSIAN)
    rivals = [reading for reading in readings if reading is not best]
    has_rival = any(o.mess <= best.mess + _NEAR_MESS and o.fit > best.fit * _NEAR_FIT for o in rivals)
    return None if has_rival or is_mixed else best.encoding


def has_wide_words(body: bytes) -> bool:
    """Whether bytes beyond ASCII stand side by side, as in every script but Latin, whose accents stand alone."""
    sample = _sample(body)
    return sum(len(run) for run in _WIDE_RUN.findall(sample)) * 4 > num_wide(sample)


def num_wide(sample: bytes) -> int:
    """The number of bytes beyond ASCII."""
    return len(sample) - len(sample.translate(None, _WIDE))


def _sample(body: bytes) -> bytes:
    """The first words that tell the encoding. Its end may be in the middle of a character."""
    words, size = [], 0
    for word in _WIDE_WORD.finditer(body, 0, _SEARCHED_BYTES):
        words.append(word[0][:_SAMPLE_BYTES])
        size += len(words[-1]) + 1
        if size > _SAMPLE_BYTES:
            break
    return b" ".join(words)


def _measure(sample: bytes, encoding: str, least: float) -> Reading | None:
    """Decode and measure the sample; None if it is not valid in this encoding. Each encoding is measured separately:
    asked for all at once, the library leaves out those it deems less likely, and with them the rivals."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
        whole = text.encode(encoding)
    except UnicodeError:
        return None
    match = from_bytes(whole, cp_isolation=[encoding], preemptive_behaviour=False, enable_fallback=False).best()
    if match is None:
        return None
    letters = [c for c in text if c > "\x7f" and c.isalpha()]
    is_everyday = _EVERYDAY.get(encoding)
    share = sum(map(is_everyday, letters)) / max(len(letters), 1) if is_everyday else match.coherence
    return Reading(encoding, text, match.chaos, share / least)


def _is_kana(letter: str) -> bool:
    return "\u3041" <= letter <= "\u30ff"


_RUSSIAN = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"
_BEYOND_RUSSIAN = ("ґєії", "іў", "ђјљњћџ", "ѓѕјљњќџ")
"""Ukrainian, Belarusian, Serbian, Macedonian."""

_EVERYDAY: Mapping[str, Callable[[str], bool]] = {
    "cp932": _is_kana,
    "euc_jp": _is_kana,
    "cp949": lambda letter: "\uac00" <= letter <= "\ud7a3",  # Hangul
}
"""Everyday letters of languages with so many frequent letters that the library's coherence says nothing."""

_FAMILIES: tuple[Mapping[str, float], ...] = (
    {"cp932": 0.25}, {"euc_jp": 0.25}, {"gb18030": 0.1}, {"cp950": 0.1}, {"cp949": 0.8},
    {"cp1251": 0.5}, {"koi8_r": 0.5, "koi8_u": 0.5}, {"cp866": 0.5}, {"iso8859_5": 0.5}, {"mac_cyrillic": 0.5},
    {"cp1253": 0.45, "iso8859_7": 0.45}, {"cp1255": 0.5}, {"cp1256": 0.4}, {"iso8859_6": 0.4}, {"cp874": 0.3},
)  # fmt: skip
"""The encodings tried, each the widest of its kind (cp932 for Shift-JIS, gb18030 for GBK), with the least share of
everyday letters or the least coherence that is believed: more than texts in other encodings and noise have reached."""
