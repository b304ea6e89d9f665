"""Numbers of list items as letters, Roman numerals and other signs: those of Word (ECMA-376 part 1, 17.18.59), and
those of HTML, which are written before the items as the page shows them."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from string import ascii_lowercase, ascii_uppercase

from inscriptis.model.html_document_state import HtmlDocumentState
from inscriptis.model.tag.list_tag import li_start_handler
from lxml.etree import _Element

_ALPHABETS = {
    "lowerLetter": ascii_lowercase,
    "upperLetter": ascii_uppercase,
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
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_LARGEST_ROMAN = 3_999
_LABEL = "label"
_INTEGER = re.compile(r"[ \t\r\n\f]*([+-]?[0-9]{1,9})(?![0-9])")
_BY_LETTER = {"a": "lower-alpha", "A": "upper-alpha", "i": "lower-roman", "I": "upper-roman", "1": "decimal"}
_BULLETS = ("disc", "circle", "square", "none")


def _roman(number: int) -> str:
    if not 0 < number <= _LARGEST_ROMAN:
        return str(number)
    numeral = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        numeral += letters * count
    return numeral


def _letters(number: int) -> str:
    """The number as letters: a, b, ... z, aa, ab, ..."""
    if number <= 0:
        return str(number)
    word = ""
    while number:
        number, place = divmod(number - 1, len(ascii_lowercase))
        word = ascii_lowercase[place] + word
    return word


def _repeated(alphabet: str, number: int) -> str:
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


_Numerals = Mapping[str, Callable[[int], str]]
"""Functions that write a number, by the names of kinds. Where a kind has no sign for a number, it is in digits."""

OF_WORD: _Numerals = {
    **{kind: partial(_repeated, alphabet) for kind, alphabet in _ALPHABETS.items()},
    **dict.fromkeys(
        ("chineseCounting", "chineseCountingThousand", "taiwaneseCountingThousand", "japaneseCounting"), _counted
    ),
    "lowerRoman": _roman,
    "upperRoman": lambda number: _roman(number).upper(),
    "decimalZero": lambda number: f"{number:02}",
    "decimalEnclosedCircle": partial(_enclosed, "①"),
    "decimalEnclosedParen": partial(_enclosed, "⑴"),
    "decimalEnclosedFullstop": partial(_enclosed, "⒈"),
    "ideographDigital": lambda number: "".join(_HAN[int(digit)] for digit in str(number)),
    "ordinal": lambda number: f"{number}{'th' if number % 100 in _TEENS else _ORDINALS.get(number % 10, 'th')}",
    "none": lambda number: "",
}
OF_HTML: _Numerals = {
    "decimal": str,
    "decimal-leading-zero": OF_WORD["decimalZero"],
    **dict.fromkeys(("lower-alpha", "lower-latin"), _letters),
    **dict.fromkeys(("upper-alpha", "upper-latin"), lambda number: _letters(number).upper()),
    "lower-roman": OF_WORD["lowerRoman"],
    "upper-roman": OF_WORD["upperRoman"],
}


def number_items(tree: _Element) -> None:
    """Put its number on each item of a list that has them. `type` of lists and items: as HTML or a style names it, or
    on an item a quote and the number itself."""
    for item in tree.iter("li"):
        item.attrib.pop(_LABEL, None)
        if (type_ := item.get("type", "")).startswith("'"):
            item.set(_LABEL, type_[1:])
        if _integer(item, "value") is None:
            item.attrib.pop("value", None)  # the renderer would fail on one that is no number
    for list_ in (list_ for list_ in tree.iter("ol", "ul") if list_.tag == "ol" or _type(list_) in OF_HTML):
        items = [child for child in list_ if child.tag == "li"]
        is_reversed = "reversed" in list_.attrib
        start = _integer(list_, "start")
        number = start if start is not None else len(items) if is_reversed else 1
        for item in items:
            value = _integer(item, "value")
            number = number if value is None else value
            type_ = _type(item) or _type(list_)
            if _LABEL not in item.attrib:
                item.set(_LABEL, "*" if type_ in _BULLETS else f"{OF_HTML.get(type_, str)(number)}.")
            number += -1 if is_reversed else 1


def start_item(state: HtmlDocumentState, attributes: Mapping[str, str]) -> None:
    """Have the renderer write an item's number."""
    li_start_handler(state, attributes)
    if (label := attributes.get(_LABEL)) is not None:
        state.tags[-1].list_bullet = f"{label} " if label else ""


def _type(element: _Element) -> str:
    name: str = element.get("type", "")
    return _BY_LETTER.get(name, name.lower())


def _integer(element: _Element, name: str) -> int | None:
    match = _INTEGER.match(element.get(name, ""))
    return int(match[1]) if match else None
