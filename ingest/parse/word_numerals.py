"""Numbers of list items as Word shows them: letters, Roman numerals and other signs (ECMA-376 part 1, 17.18.59)."""

from collections.abc import Callable, Mapping
from functools import partial

from ingest.parse.numerals import roman

_ALPHABETS = {
    "lowerLetter": "abcdefghijklmnopqrstuvwxyz",
    "upperLetter": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "russianLower": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "russianUpper": "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ",
    "arabicAlpha": "أبتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "hebrew2": "אבגדהוזחטיכלמנסעפצקרשת",
    "ganada": "가나다라마바사아자차카타파하",
    "aiueoFullWidth": "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン",
    "irohaFullWidth": "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセスン",
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸",
    "thaiLetters": "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ",
}
_MAX_REPEATS = 10
_HAN, _MAX_COUNTED = "〇一二三四五六七八九", 99
_MAX_ENCLOSED = 20
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = (11, 12, 13)


def numeral(number: int, kind: str) -> str:
    """A number in a kind of numerals (`w:numFmt`), or in digits where the kind has none for it."""
    return _NUMERALS.get(kind, str)(number)


def _letter(alphabet: str, number: int) -> str:
    """The letter; after the last one, each twice, then three times."""
    repeats, place = divmod(number - 1, len(alphabet))
    return alphabet[place] * (repeats + 1) if 0 <= repeats < _MAX_REPEATS else str(number)


def _counted(number: int) -> str:
    tens, ones = divmod(number, 10)
    if not 0 < number <= _MAX_COUNTED:
        return str(number)
    return f"{_HAN[tens] if tens > 1 else ''}{'十' if tens else ''}{_HAN[ones] if ones else ''}"


def _enclosed(first: str, number: int) -> str:
    return chr(ord(first) + number - 1) if 0 < number <= _MAX_ENCLOSED else str(number)


def _ordinal(number: int) -> str:
    return f"{number}{'th' if number % 100 in _TEENS else _ORDINALS.get(number % 10, 'th')}"


_NUMERALS: Mapping[str, Callable[[int], str]] = {
    **{kind: partial(_letter, alphabet) for kind, alphabet in _ALPHABETS.items()},
    **dict.fromkeys(("chineseCounting", "chineseCountingThousand", "taiwaneseCountingThousand"), _counted),
    "japaneseCounting": _counted,
    "lowerRoman": roman,
    "upperRoman": lambda number: roman(number).upper(),
    "decimalZero": lambda number: f"{number:02}",
    "decimalEnclosedCircle": partial(_enclosed, "①"),
    "decimalEnclosedParen": partial(_enclosed, "⑴"),
    "decimalEnclosedFullstop": partial(_enclosed, "⒈"),
    "ideographDigital": lambda number: "".join(_HAN[int(digit)] for digit in str(number)),
    "ordinal": _ordinal,
    "none": lambda number: "",
}
