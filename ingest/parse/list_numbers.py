"""Numbers of the paragraphs in a Word document's lists, counted and written as Word does (ECMA-376 part 1, 17.9).

A list goes on over paragraphs that are not part of it; converted to HTML, it would begin anew after each, in digits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from lxml.etree import QName, SubElement, _Element

from ingest.parse.numerals import OF_WORD
from ingest.parse.word_markup import is_on, styles_of, value_at, value_of, with_bases

_MARK = re.compile(r'(<li>)?<a id="list-number-([^"<>]*)"></a>')
_AROUND_LIST = re.compile("<li>(?=<[ou]l>)")
_PLACE = re.compile(r"%([1-9])")
_MAX_LINKS = 10  # from lists by styles to other lists
_NUMBER = re.compile(r"[0-9]{1,9}")
_CHANGES = ("del", "moveFrom")  # of the end of a paragraph
_NUM_LEVELS, _MAX_TEXT_CHARS = 9, 80
_NUM_ID, _LEVEL = "{*}numPr/{*}numId", "{*}numPr/{*}ilvl"


def mark_list_numbers(document: _Element, numbering: _Element, styles: _Element | None) -> None:
    """Put a bookmark with its number, as it is shown, at the start of each paragraph of a numbered list."""
    lists = _Lists(numbering, styles)
    paragraphs = list(document.iter("{*}p"))
    for paragraph in paragraphs:
        properties, has_words = paragraph.find("{*}pPr"), bool("".join(paragraph.itertext()).strip())
        if properties is None:
            continue
        is_deleted = any(properties.find(f"{{*}}rPr/{{*}}{change}") is not None for change in _CHANGES)
        if is_deleted or (not has_words and is_on(properties.find("{*}rPr/{*}vanish"))):
            continue
        number = lists.count(properties)
        if number is not None and has_words:
            namespace = QName(paragraph).namespace
            bookmark = SubElement(paragraph, f"{{{namespace}}}bookmarkStart")
            bookmark.set(f"{{{namespace}}}name", f"list-number-{number}")
            paragraph.insert(paragraph.index(properties) + 1, bookmark)


def number_items(html: str) -> str:
    """The HTML with the numbers in place of their bookmarks: before the words, or as the `type` of a list item. Items
    that only hold a list have none."""
    numbered = _MARK.sub(lambda mark: f'<li type="&#39;{mark[2].strip()}">' if mark[1] else mark[2], html)
    return _AROUND_LIST.sub('<li type="&#39;">', numbered)


class _Level:
    def __init__(self, level: _Element) -> None:
        depth = _depth(level)
        self.style = value_at(level, "{*}pStyle")
        self.kind = value_at(level, "{*}numFmt") or "decimal"
        self.is_legal = bool(is_on(level.find("{*}isLgl")))
        text = value_at(level, "{*}lvlText")
        self.text = f"%{depth + 1}." if text is None else text[:_MAX_TEXT_CHARS]
        self.gap = "" if value_at(level, "{*}suff") == "nothing" else " "
        self.start = _number(value_at(level, "{*}start"), 1)
        self.restart = _number(value_at(level, "{*}lvlRestart"), depth)
        """The level begins anew after one above this."""


class _List:
    """An abstract numbering. The lists that refer to it go on with its numbers."""

    def __init__(self, definition: _Element) -> None:
        self.style_link = value_at(definition, "{*}numStyleLink")
        self.levels = dict(_levels(definition.iterchildren("{*}lvl")))
        self.depths = {level.style: depth for depth, level in self.levels.items() if level.style is not None}
        self._numbers: dict[int, int] = {}

    def depth_of(self, style: _Element) -> int | None:
        """The level of a style's paragraphs."""
        if (depth := self.depths.get(value_of(style, "styleId"))) is not None:
            return depth
        level = value_at(style, f"{{*}}pPr/{_LEVEL}")
        return None if level is None else _number(level, 0)

    def count(self, depth: int, restart: int | None, levels: Mapping[int, _Level]) -> str | None:
        """The number of the next paragraph at a level, or None for a bullet. `restart`: the number to begin again
        with; `levels`: those of the list that refers to this."""
        level = levels.get(depth)
        if level is None:
            return None
        following = self._numbers[depth] + 1 if depth in self._numbers else level.start
        self._numbers[depth] = following if restart is None else restart
        for deeper in [number for number in self._numbers if number > depth]:
            if deeper in levels and depth < levels[deeper].restart:
                del self._numbers[deeper]
        if level.kind == "bullet":
            return None

        def number_of(place: re.Match[str]) -> str:
            outer_depth = int(place[1]) - 1
            if outer_depth not in levels:
                return ""
            outer = levels[outer_depth]
            kind = "decimal" if level.is_legal else outer.kind
            return OF_WORD.get(kind, str)(self._numbers.get(outer_depth, outer.start))

        words = " ".join(_PLACE.sub(number_of, level.text).split())
        return f"{words}{level.gap}" if words else ""


class _Lists:
    def __init__(self, numbering: _Element, styles: _Element | None) -> None:
        self._lists = {
            value_of(abstract, "abstractNumId"): _List(abstract)
            for abstract in numbering.iterchildren("{*}abstractNum")
        }
        self._by_style = {style: item_list for item_list in self._lists.values() for style in item_list.depths}
        nums = {value_of(num, "numId"): num for num in numbering.iterchildren("{*}num")}
        self._of_id = {num_id: value_at(num, "{*}abstractNumId") or "" for num_id, num in nums.items()}
        self._restarts = {  # numbers that lists begin with instead of going on, by the list's id and the level
            (num_id, _depth(override)): _number(start, 1)
            for num_id, num in nums.items()
            for override in num.iterchildren("{*}lvlOverride")
            if (start := value_at(override, "{*}startOverride")) is not None
        }
        self._replaced = {num_id: dict(_levels(num.iterfind("{*}lvlOverride/{*}lvl"))) for num_id, num in nums.items()}
        self._styles = styles_of(styles)

    def count(self, properties: _Element) -> str | None:
        """The number of the next paragraph, as it is shown, or None for one without."""
        style = value_at(properties, "{*}pStyle")
        chain = [] if style is None else with_bases(self._styles, style)
        num_ids = (value_at(properties, _NUM_ID), *map(_num_id, chain))
        num_id = next((value for value in num_ids if value is not None), None)
        item_list = self._by_style.get(style) if num_id is None and style else self._list_of(num_id)
        if item_list is None:
            return None
        depth = _number(value_at(properties, _LEVEL), -1)
        if depth < 0:
            depths = (item_list.depths.get(style or ""), *map(item_list.depth_of, chain))
            depth = next((place for place in depths if place is not None), 0)
        levels = {**item_list.levels, **self._replaced.get(num_id or "", {})}
        return item_list.count(depth, self._restarts.pop((num_id or "", depth), None), levels)

    def _list_of(self, num_id: str | None) -> _List | None:
        for _ in range(_MAX_LINKS):
            item_list = self._lists.get(self._of_id.get(num_id or "", ""))
            if item_list is None or item_list.style_link is None:
                return item_list
            num_id = _num_id(self._styles.get(item_list.style_link))
        return None


def _levels(levels: Iterable[_Element]) -> Iterator[tuple[int, _Level]]:
    for level in levels:
        if _depth(level) < _NUM_LEVELS:
            yield _depth(level), _Level(level)


def _num_id(style: _Element | None) -> str | None:
    return value_at(style, f"{{*}}pPr/{_NUM_ID}")


def _depth(level: _Element) -> int:
    """The depth of a level, from 0 for the outermost."""
    return _number(value_of(level, "ilvl"), 0)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and _NUMBER.fullmatch(text) else default
