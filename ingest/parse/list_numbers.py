"""Numbers of the items in a Word document's lists, counted as Word does (ECMA-376 part 1, 17.9).

A list goes on over paragraphs that are not part of it; converted to HTML, it would begin anew after each.
"""

import re
from collections.abc import Iterable, Iterator

from lxml.etree import QName, SubElement, _Element

_MARK = re.compile(r'<li><a id="list-number-([0-9]{1,9})"></a>')
_MAX_LINKS = 10  # from lists by styles to other lists
_NUMBER = re.compile(r"[0-9]{1,9}")


def mark_list_numbers(document: _Element, numbering: _Element, styles: _Element | None) -> None:
    """Put a bookmark with its number at the start of each paragraph that is an item of a numbered list."""
    lists = _Lists(numbering, styles)
    paragraphs = list(document.iter("{*}p"))
    for paragraph in paragraphs:
        if next(paragraph.iterancestors("{*}Choice"), None) is None and not _is_deleted(paragraph):
            number = lists.count(_find(paragraph, "pPr"))
            if number is not None and "".join(paragraph.itertext()).strip():
                namespace = QName(paragraph).namespace
                bookmark = SubElement(paragraph, f"{{{namespace}}}bookmarkStart")
                bookmark.set(f"{{{namespace}}}name", f"list-number-{number}")
                paragraph.insert(1, bookmark)  # behind the paragraph's properties, without which it has no number


def number_items(html: str) -> str:
    """The HTML with the bookmarks replaced by the numbers of their list items."""
    return _MARK.sub(r'<li value="\1">', html)


class _Level:
    def __init__(self, level: _Element) -> None:
        self.is_numbered = _value(level, "numFmt") != "bullet"
        self.start = _number(_value(level, "start"), 1)
        self.restart = _number(_value(level, "lvlRestart"), _depth(level))
        """The level begins anew after one above this."""


class _List:
    """An abstract numbering. The lists that refer to it go on with its numbers."""

    def __init__(self, definition: _Element) -> None:
        self.style = _value(definition, "numStyleLink")
        self._levels = {_depth(level): _Level(level) for level in _all(definition, "lvl")}
        self._numbers: dict[int, int] = {}

    def count(self, depth: int, restart: int | None) -> int | None:
        """The number of the next item at a level, or None for a bullet. `restart`: the number to begin again with."""
        level = self._levels.get(depth)
        if level is None:
            return None
        following = self._numbers[depth] + 1 if depth in self._numbers else level.start
        self._numbers[depth] = following if restart is None else restart
        for deeper in [number for number in self._numbers if number > depth]:
            if depth < self._levels[deeper].restart:
                del self._numbers[deeper]
        return self._numbers[depth] if level.is_numbered else None


class _Lists:
    def __init__(self, numbering: _Element, styles: _Element | None) -> None:
        self._lists = {
            _attribute(abstract, "abstractNumId"): _List(abstract) for abstract in _all(numbering, "abstractNum")
        }
        self._by_style = {
            style: (self._lists[_attribute(abstract, "abstractNumId")], _depth(level))
            for abstract in _all(numbering, "abstractNum")
            for level in _all(abstract, "lvl")
            if (style := _value(level, "pStyle")) is not None
        }
        self._of_id = {
            _attribute(instance, "numId"): _value(instance, "abstractNumId") or ""
            for instance in _all(numbering, "num")
        }
        self._restarts = dict(_restarts(_all(numbering, "num")))
        self._ids_of_styles = {} if styles is None else dict(_ids_of_styles(styles))

    def count(self, properties: _Element | None) -> int | None:
        """The number of the next paragraph, or None for one without."""
        numbered = _find(properties, "numPr")
        num_id, level = _value(numbered, "numId"), _value(numbered, "ilvl")
        linked = self._by_style.get(_value(properties, "pStyle") or "")
        if linked is not None and (num_id is None or level is None):
            return linked[0].count(linked[1], None)
        item_list = self._list_of(num_id)
        depth = _number(level, 0)
        return None if item_list is None else item_list.count(depth, self._restarts.pop((num_id, depth), None))

    def _list_of(self, num_id: str | None) -> _List | None:
        for _ in range(_MAX_LINKS):
            item_list = self._lists.get(self._of_id.get(num_id or "", ""))
            if item_list is None or item_list.style is None:
                return item_list
            num_id = self._ids_of_styles.get(item_list.style)
        return None


def _restarts(nums: Iterable[_Element]) -> Iterator[tuple[tuple[str | None, int], int]]:
    """The numbers that lists begin with instead of going on, by the list's id and the level."""
    for num in nums:
        for override in _all(num, "lvlOverride"):
            if (start := _value(override, "startOverride")) is not None:
                yield (_attribute(num, "numId"), _depth(override)), _number(start, 1)


def _ids_of_styles(styles: _Element) -> Iterator[tuple[str | None, str | None]]:
    for style in _all(styles, "style"):
        yield _attribute(style, "styleId"), _value(_find(_find(style, "pPr"), "numPr"), "numId")


def _is_deleted(paragraph: _Element) -> bool:
    """Whether the end of the paragraph was deleted or moved away, as a tracked change."""
    marks = _find(_find(paragraph, "pPr"), "rPr")
    return _find(marks, "del") is not None or _find(marks, "moveFrom") is not None


def _depth(level: _Element) -> int:
    """The depth of a level, from 0 for the outermost."""
    return _number(_attribute(level, "ilvl"), 0)


def _find(element: _Element | None, name: str) -> _Element | None:
    return None if element is None else element.find(f"{{*}}{name}")


def _all(element: _Element, name: str) -> Iterator[_Element]:
    yield from element.iterchildren(f"{{*}}{name}")


def _value(element: _Element | None, name: str) -> str | None:
    """The value of a property."""
    child = _find(element, name)
    return None if child is None else _attribute(child, "val")


def _attribute(element: _Element, name: str) -> str | None:
    value: str | None = element.get(f"{{{QName(element).namespace}}}{name}")
    return value


def _number(text: str | None, default: int) -> int:
    return int(text) if text and _NUMBER.fullmatch(text) else default
