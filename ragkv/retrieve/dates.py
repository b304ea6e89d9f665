"""Dates in a question in the other forms that documents write them in: 2026-03-05, 05.03.2026, 5 March 2026.

Documents keep their terms as they are, so that nothing is indexed again.
"""

import re
from collections.abc import Iterator
from datetime import date

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
    """The dates of a text of small letters without accents; those whose order of day and month is not told, as in
    5/3/2026, are none."""
    for match in _DATE.finditer(text):
        year, month, day = (next(filter(None, match.group(*(f"{part}{i}" for i in range(1, 5))))) for part in "ymd")
        try:
            yield date(int(year), _NUMBER_OF.get(month) or int(month), int(day))
        except ValueError:  # 2026-13-40
            continue


def spellings(day: date) -> list[str]:
    """The forms of a date in numbers."""
    return [
        f"{day:%Y-%m-%d}",
        f"{day.day:02}.{day.month:02}.{day.year}",
        f"{day.day}.{day.month}.{day.year}",
        f"{day.day:02}/{day.month:02}/{day.year}",
        f"{day.month:02}/{day.day:02}/{day.year}",
        f"{day:%Y/%m/%d}",
    ]


def parts(day: date) -> list[str]:
    """The words of a date in words."""
    return [*_MONTHS[day.month - 1].split(), str(day.day), str(day.year)]
