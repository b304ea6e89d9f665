"""Pictures and charts in words: descriptions written for those who do not see them (alt text), and what charts of
Office documents show."""

import re
from collections.abc import Sequence
from itertools import islice

from lxml.etree import _Element

from ragkv.errors import TooLarge

_MAX_CHARS = 1_000
_LEAST_WORDS, _MAX_LEVELS = 4, 3
_SUFFIX = r"\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|[ew]mf|heic|avif|ico)(?:[?#]\S*)?"
_PICTURE_FILE = re.compile(rf"{_SUFFIX}\s*\Z", re.IGNORECASE)
_FILE_NAME = re.compile(
    rf"\S*{_SUFFIX}|https?://\S*|(?=[\w-]*\d{{4}})[\w-]+"
    r"|(?:image|img|picture|pic|photo|bild|grafik|imagen|figure|icon|logo|spacer|untitled|placeholder|screenshot)"
    r"[\s_-]*\d*",
    re.IGNORECASE,
)
_BY_MACHINE = re.compile(
    r"description automatically generated|automatisch generierte beschreibung|ai-generated content may be",
    re.IGNORECASE,
)
_MAX_CELLS, _MAX_DIGITS = 8_000_000, 9


def described(alternative: str | None) -> str:
    """A picture's description as text, or nothing where it says no more than the name of a file would."""
    words = " ".join(_BY_MACHINE.split((alternative or "")[:_MAX_CHARS])[0].split())
    says_nothing = _FILE_NAME.fullmatch(words) or not any(map(str.isalpha, words))
    return "" if says_nothing else f"[Picture: {words}]"


def write_descriptions(tree: _Element) -> None:
    """Write the description of each picture of an HTML page in its place. That of a link is no description but the
    name of where it leads, unless this is a picture or it has several words."""
    for picture in tree.iter("img"):
        words = described(picture.get("alt"))
        links = [around for around in islice(picture.iterancestors(), _MAX_LEVELS) if around.tag == "a"]
        leads_away = links and not _PICTURE_FILE.search(links[0].get("href", "")[-_MAX_CHARS:])
        if not leads_away or words.count(" ") >= _LEAST_WORDS:
            picture.tag, picture.text = "span", words


def read_chart(chart: _Element) -> tuple[str, Sequence[Sequence[str]]]:
    """The titles, one a line, and the rows of the table, of which the first holds the names of the series; none for a
    chart without series."""
    titles = ("".join(text.text or "" for text in line.iter("{*}t")) for line in chart.iterfind(".//{*}title//{*}p"))
    series = list(chart.iter("{*}ser"))
    names = [" ".join(_values(entry, "{*}tx").values()) for entry in series]
    categories = max((_values(entry, "{*}cat") or _values(entry, "{*}xVal") for entry in series), key=len, default={})
    columns = [categories, *(_values(entry, "{*}val") or _values(entry, "{*}yVal") for entry in series)]
    places = sorted(set().union(*columns))
    if len(places) * len(columns) > _MAX_CELLS:
        raise TooLarge(f"a chart has more than {_MAX_CELLS:,} values: upload its data as CSV")
    rows = [["", *names], *([column.get(place, "") for column in columns] for place in places)] if series else []
    return "\n".join(filter(None, titles)), rows


def _values(series: _Element, kind: str) -> dict[int, str]:
    """Values by their places: blank ones are not written. Levels of a category are joined, the outermost first."""
    levels: dict[int, list[str]] = {}
    for part in series.iterfind(kind):
        for value in part.iter("{*}v"):
            index = value.getparent().get("idx", "")
            place = int(index) if index.isdecimal() and len(index) <= _MAX_DIGITS else len(levels)
            levels.setdefault(place, []).append(value.text or "")
    return {place: " ".join(reversed(words)) for place, words in levels.items()}
