"""Numbers, dates and durations as a spreadsheet shows them, by their format codes.

The codes are those of ECMA-376, part 1, 18.8.30 and 18.8.31: up to four sections (positive, negative, zero, text), or
sections with conditions. Points, commas and the names of months and days are English, as in the codes: a file does not
say in which language it was shown.
"""

import calendar
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from itertools import groupby, pairwise
from operator import eq, ge, gt, itemgetter, le, lt, ne

GENERAL = "General"
TEXT = "@"
_DATE, _TIME = "yyyy-mm-dd", "hh:mm:ss"
BUILT_IN: Mapping[int, str] = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?", 13: "# ??/??",
    14: _DATE, 15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM", 20: "h:mm",
    21: "h:mm:ss", 22: f"{_DATE} hh:mm", 45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss.0", 48: "##0.0E+0", 49: TEXT,
    **dict.fromkeys((5, 6, 37, 38, 41, 42), "#,##0;(#,##0)"),
    **dict.fromkeys((7, 8, 39, 40, 43, 44), "#,##0.00;(#,##0.00)"),
    **dict.fromkeys((27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), _DATE),
    **dict.fromkeys((32, 33, 34, 35, 55, 56), _TIME),
}  # fmt: skip
"""Codes by their numbers. Dates that each machine shows in its own order are in ISO 8601."""
_SYSTEM_DATES = {"$-f800": _DATE, "$-f400": _TIME}
_TIMES = ("date", "elapsed")
_MAX_CODE_CHARS, _MAX_SECTIONS, _MAX_DENOMINATOR = 255, 4, 10**7
_LAST_DAY, _LEAP_BUG, _DAYS_TO_1904, _DAY_S = 2_958_465, 60, 1_462, 86_400
_PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.?)|(?P<blank>_.?)|\*.?|\[(?P<bracket>[^\]]*)\]?|(?P<general>General)'
    r"|(?P<half>AM/PM|A/P)|(?P<exponent>E[+-])|(?P<date>y+|m+|d+|h+|s+|e+|b+|g+|aaa+)|(?P<digit>[0#?])|(?P<end>;)"
    r"|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_CONDITION = re.compile(r"(<=|>=|<>|<|>|=)\s*(-?\d+(?:\.\d*)?)")
_ELAPSED = re.compile(r"h+|m+|s+", re.IGNORECASE)
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {"<=": le, ">=": ge, "<>": ne, "<": lt, ">": gt, "=": eq}
_BELOW = ("<", "<=", "=")
_ANY = "<", math.inf
_PLAIN = re.compile(r"#*(0+)((?:\.0+)?)")
_USUAL = re.compile("l?w(pd)?l?")
_CONTEXT = Context(prec=2_000, rounding=ROUND_HALF_UP)
_Piece = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Section:
    """pieces: kinds and texts. condition: an operator and the number that values are compared to."""

    pieces: Sequence[_Piece]
    condition: tuple[str, float] | None = None


class NumberFormat:
    """A format code. is_1904: days are counted from 1904, as in files of old Macs."""

    def __init__(self, code: str, *, is_1904: bool = False) -> None:
        sections = _sections(code if 0 < len(code) <= _MAX_CODE_CHARS else GENERAL)
        has_text = len(sections) == _MAX_SECTIONS or any(kind == "text" for kind, _ in sections[-1].pieces)
        self._text = sections.pop() if has_text else None
        # Sections without a condition are for positive, negative and all other numbers.
        second = _ANY if len(sections) == 2 and sections[0].condition else ("<", 0.0)  # noqa: PLR2004 - sections
        usual = [[_ANY], [(">=", 0.0), second], [(">", 0.0), second, _ANY]][len(sections) - 1]
        self._numbers = []
        for section, default in zip(sections, usual, strict=False):
            operator, limit = section.condition or default
            has_no_sign = operator in _BELOW and limit <= 0
            self._numbers.append((_OPERATORS[operator], limit, has_no_sign, _shower(section, is_1904=is_1904)))

    def number(self, value: float) -> str:
        """A number, date, time or duration as it is shown; nothing where the format shows nothing."""
        for compare, limit, has_no_sign, show in self._numbers:
            if compare(value, limit) and math.isfinite(value):
                shown = show(-value if value < 0 and has_no_sign else value)
                return general(value) if shown is None else shown
        return general(value)

    def text(self, text: str) -> str:
        """A text as it is shown: most formats leave it as it is."""
        if self._text is None:
            return text
        return "".join(text if kind == "text" else literal for kind, literal in self._text.pieces).strip()


def general(value: float) -> str:
    """A number without a format, to as many digits as spreadsheets hold."""
    return f"{value:.15g}"


def _sections(code: str) -> list[_Section]:
    sections: list[_Section] = []
    pieces: list[_Piece] = []
    condition: tuple[str, float] | None = None
    for match in _PIECE.finditer(code):
        kind, text = match.lastgroup or "literal", match[0]
        if kind == "end":
            sections.append(_Section(pieces, condition))
            pieces, condition = [], None
        elif kind == "bracket" and (compared := _CONDITION.fullmatch(match["bracket"])):
            condition = compared[1], float(compared[2])
        elif kind == "bracket":
            pieces += _bracketed(match["bracket"])
        elif kind in ("quoted", "escaped"):
            pieces.append(("literal", match[kind]))
        elif kind == "blank":
            pieces.append(("literal", " "))
        elif kind == "other":
            pieces.append(({"@": "text", ".": "point", ",": "comma", "%": "percent"}.get(text, "literal"), text))
        elif kind != "literal":
            pieces.append((kind, text))
    return [*sections, _Section(pieces, condition)][:_MAX_SECTIONS]


def _bracketed(content: str) -> Iterator[_Piece]:
    """Signs of currencies and elapsed time; colours and languages show nothing."""
    if _ELAPSED.fullmatch(content):
        yield "elapsed", content.lower()
    elif code := _SYSTEM_DATES.get(content.lower()):
        yield "system", code
    elif content.startswith("$"):
        yield "literal", content[1:].rpartition("-")[0] or content[1:].partition("-")[0]


def _shower(section: _Section, *, is_1904: bool) -> Callable[[float], str | None]:
    """The function that shows numbers. It returns nothing for a date that there is not."""
    if system := [code for kind, code in section.pieces if kind == "system"]:
        return _shower(_sections(system[0])[0], is_1904=is_1904)
    kinds = [kind for kind, _ in section.pieces]
    digits = any(kind == "digit" and preceding not in ("point", "digit") for preceding, kind in pairwise(["", *kinds]))
    if not {"date", "elapsed"}.isdisjoint(kinds) and not digits and "general" not in kinds:
        # Digits stand in a section for dates or times for parts of a second alone.
        return _Time(section.pieces, is_1904=is_1904).show
    pieces = [("literal", text) if kind in ("date", "half") else (kind, text) for kind, text in section.pieces]
    if not any(kind in ("digit", "general", "text") for kind, _ in pieces):
        shown = "".join(text for _, text in pieces).strip()
        return lambda _: shown
    if any(kind in ("general", "text") for kind, _ in pieces):
        show: Callable[[float], str] = lambda value: "".join(  # noqa: E731
            general(value) if kind in ("general", "text") else text for kind, text in pieces
        )
    else:
        show = (("literal", "/") in pieces and _fraction(pieces)) or _Decimals(pieces).show
    return lambda value: f"-{show(-value).strip()}" if value < 0 else show(value).strip()


class _Decimals:
    """A section for decimal numbers."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces: list[_Piece] = []
        self._has_thousands = False
        self._power = 2 * sum(kind == "percent" for kind, _ in pieces)
        part, has_digit = "whole", False
        counts = {"whole": 0, "decimal": 0, "power": 0}
        for index, (kind, text) in enumerate(pieces):
            if kind == "digit":
                has_digit = True
                counts[part] += 1
                self._pieces.append((part, text))
            elif kind == "comma" and has_digit:
                following = next((kind for kind, _ in pieces[index:] if kind != "comma"), "")
                self._has_thousands |= following == "digit"
                self._power -= 0 if following == "digit" else 3
            elif kind == "point" and part == "whole":
                part = "decimal"
                self._pieces.append(("point", text))
            elif kind == "exponent" and part != "power":
                part = "power"
                self._pieces.append(("exponent", text))
            else:
                self._pieces.append(("literal", text))
        self._counts = counts
        self._starts_decimals = not counts["whole"] and any(kind == "point" for kind, _ in self._pieces)
        self._has_exponent = part == "power"
        self._quantum = Decimal(1).scaleb(-counts["decimal"])
        self._plain = self._plain_places()

    def show(self, value: float) -> str:
        number, power = Decimal(f"{value:.15g}").scaleb(self._power, _CONTEXT), 0
        if self._plain:
            left, spec, right = self._plain
            return f"{left}{self._rounded(number):{spec}}{right}"
        if self._has_exponent:
            number, power = self._mantissa(number)
        whole, _, decimals = f"{self._rounded(number):f}".partition(".")
        shown = {
            "whole": self._filled("whole", whole.lstrip("0")),
            "decimal": self._decimals(decimals),
            "power": self._filled("power", str(abs(power)) if power else ""),
        }
        pieces = []
        for kind, text in self._pieces:
            if kind in shown:
                pieces.append(next(shown[kind]))
            elif kind == "exponent":
                pieces.append("E" + ("-" if power < 0 else text[1].replace("-", "")))
            elif kind == "point" and self._starts_decimals:
                pieces.append(whole.lstrip("0") + text)
            else:
                pieces.append(text)
        return "".join(pieces).strip()

    def _plain_places(self) -> tuple[str, str, str] | None:
        """The literals on the left, the number's format in Python, and the literals on the right, where the places are
        the usual ones: this is much faster."""
        groups = groupby(self._pieces, key=itemgetter(0))
        kinds, texts = zip(*((kind, "".join(text for _, text in group)) for kind, group in groups), strict=True)
        match = _PLAIN.fullmatch("".join(text for kind, text in self._pieces if kind != "literal"))
        is_usual = not self._has_exponent and _USUAL.fullmatch("".join(kind[0] for kind in kinds))
        if match is None or not is_usual or (self._has_thousands and len(match[1]) > 1):
            return None
        left = texts[0] if kinds[0] == "literal" else ""
        right = texts[-1] if kinds[-1] == "literal" else ""
        return left, ",f" if self._has_thousands else f"0{len(match[1]) + len(match[2])}f", right

    def _rounded(self, number: Decimal) -> Decimal:
        return number.quantize(self._quantum, context=_CONTEXT)

    def _mantissa(self, number: Decimal) -> tuple[Decimal, int]:
        """The number and the power of ten beside it, a multiple of the places before the point."""
        step = max(1, self._counts["whole"])
        power = number.adjusted() // step * step if number else 0
        if self._rounded(number.scaleb(-power)) >= 10**step:
            power += step
        return number.scaleb(-power), power

    def _filled(self, part: str, digits: str) -> Iterator[str]:
        """The digits that each place of a whole number shows, from the left. The first shows those for which there is
        no place."""
        places = [text for kind, text in self._pieces if kind == part]
        spare, has_zero = len(digits) - len(places), False
        for index, place in enumerate(places):
            start = index + spare
            shown = digits[0 if index == 0 else max(start, 0) : start + 1] if start >= 0 else ""
            has_zero |= place == "0"
            if not shown and (has_zero or place == "?"):
                shown = "0" if has_zero else " "
            following = len(places) - index - 1
            if part == "whole" and self._has_thousands:
                num_following = range(following + len(shown) - 1, -1, -1)
                shown = "".join(
                    f"{digit}," if digit.isdigit() and number and number % 3 == 0 else digit
                    for number, digit in zip(num_following, shown, strict=False)
                )
            yield shown

    def _decimals(self, digits: str) -> Iterator[str]:
        places = [text for kind, text in self._pieces if kind == "decimal"]
        for index, (place, digit) in enumerate(zip(places, digits, strict=False)):
            is_shown = place == "0" or digits[index:].strip("0") or "0" in places[index:]
            yield digit if is_shown else " " if place == "?" else ""


def _fraction(pieces: Sequence[_Piece]) -> Callable[[float], str] | None:
    """The function for a section with a fraction such as `# ?/?` or `?/8`."""
    code = "".join(text if kind in ("literal", "digit") else "\0" for kind, text in pieces)
    match = re.search(r"([#0?]+ +)?([#0?]+)/([#0?]+|[1-9][0-9]{0,6})", code)
    if match is None:
        return None
    left, right = code[: match.start()].replace("\0", ""), code[match.end() :].replace("\0", "")
    below = match[3]
    is_fixed = below.isdigit() and bool(below.strip("0"))
    most = min(_MAX_DENOMINATOR, 10 ** len(below) - 1)

    def show(value: float) -> str:
        number = Fraction(f"{value:.15g}")
        whole = int(number) if match[1] else 0
        part = number - whole
        bottom = int(below) if is_fixed else _denominator(part, most)
        top = math.floor(part * bottom + Fraction(1, 2))
        if match[1] and top == bottom:
            whole, top = whole + 1, 0
        parts = [str(whole)] if whole or not top else []
        return f"{left}{' '.join([*parts, f'{top}/{bottom}'] if top else parts)}{right}"

    return show


def _denominator(number: Fraction, most: int) -> int:
    """The largest denominator, of those of the number's continued fraction, that is not more than `most`."""
    preceding, denominator = 0, 1
    while number.denominator > 1:
        number = 1 / (number - math.floor(number))
        following = math.floor(number) * denominator + preceding
        if following > most:
            break
        preceding, denominator = denominator, following
    return denominator


class _Time:
    """A section for dates, times and durations."""

    def __init__(self, pieces: Sequence[_Piece], *, is_1904: bool) -> None:
        self._pieces = [(kind, text.lower() if kind == "date" else text) for kind, text in pieces]
        self._is_1904 = is_1904
        self._is_elapsed = any(kind == "elapsed" for kind, _ in pieces)
        self._is_halved = any(kind == "half" for kind, _ in pieces)
        self._num_decimals = sum(kind == "digit" for kind, _ in pieces)
        times = [(-1, ""), *((n, text[0]) for n, (kind, text) in enumerate(self._pieces) if kind in _TIMES), (-1, "")]
        self._minutes = {
            number
            for (_, preceding), (number, letter), (_, following) in zip(times, times[1:], times[2:], strict=False)
            if letter == "m" and (preceding == "h" or following == "s")
        }

    def show(self, value: float) -> str | None:
        if abs(value) > _LAST_DAY or (value < 0 and not self._is_elapsed):
            return None
        unit = 10**self._num_decimals
        seconds, parts = divmod(math.floor(abs(value) * _DAY_S * unit + 0.5), unit)
        decimals = iter(str(parts).zfill(self._num_decimals))
        days, second = divmod(seconds, _DAY_S)
        shown = _day(days + _DAYS_TO_1904 if self._is_1904 else days)
        pieces = ["-" if value < 0 else ""]
        for number, (kind, text) in enumerate(self._pieces):
            if kind == "elapsed":
                count = seconds // {"h": 3600, "m": 60, "s": 1}[text[0]]
                pieces.append(str(count).zfill(len(text)))
            elif kind == "half":
                letters = ("AM", "PM") if len(text) > len("A/P") else ("A", "P")
                pieces.append(letters[second >= _DAY_S // 2])
            elif kind == "digit":
                pieces.append(next(decimals))
            elif kind != "date":
                pieces.append(text)
            elif text[0] in "hs" or number in self._minutes:
                pieces.append(self._clock(text, second))
            else:
                pieces.append(_calendar(text, *shown))
        return "".join(pieces).strip()

    def _clock(self, text: str, second: int) -> str:
        """Hours, minutes or seconds of a day's second, as their letters say."""
        hour = second // 3600
        parts = {"h": (hour % 12 or 12) if self._is_halved else hour, "m": second // 60 % 60, "s": second % 60}
        number = parts[text[0]]
        return f"{number:02}" if len(text) > 1 else str(number)


def _day(number: int) -> tuple[int, int, int, int]:
    """The year, the month, the day of the month, and that of the week. Day 60 is the 29 February 1900, which Lotus
    1-2-3 counted and all others after it."""
    weekday = (number - 2) % 7
    if number in (0, _LEAP_BUG):
        return (1900, 2, 29, weekday) if number else (1900, 1, 0, weekday)
    day = date(1899, 12, 31 if number < _LEAP_BUG else 30) + timedelta(min(number, _LAST_DAY))
    return day.year, day.month, day.day, weekday


def _calendar(text: str, year: int, month: int, day: int, weekday: int) -> str:
    """A part of a date, as its letters say."""
    width = len(text)
    match text[0]:
        case "y" | "e" | "b":
            year += 543 * (text[0] == "b")
            return f"{year % 100:02}" if width < 3 and text[0] != "e" else str(year)  # noqa: PLR2004 - yy, not yyy
        case "m":
            name = calendar.month_name[month]
            return (str(month), f"{month:02}", name[:3], name, name[0])[min(width, 5) - 1]
        case "d" | "a":
            name = calendar.day_name[weekday]
            return (str(day), f"{day:02}", name[:3], name)[min(width, 4) - 1]
    return ""
