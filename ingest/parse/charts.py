"""Charts of Office documents: the title, and the series as the columns of a table."""

from collections.abc import Sequence

from lxml.etree import _Element

from ragkv.errors import TooLarge

_MAX_CELLS, _MAX_DIGITS = 8_000_000, 9


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
