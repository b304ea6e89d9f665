"""Numbers of the items in HTML lists, written as the page shows them: `3.`, `c.` or `iii.` before the item."""

import re
from collections.abc import Mapping

from inscriptis.model.html_document_state import HtmlDocumentState
from inscriptis.model.tag.list_tag import li_start_handler
from lxml.etree import _Element

from ingest.parse.numerals import OF_HTML

_LABEL = "label"
_INTEGER = re.compile(r"[ \t\r\n\f]*([+-]?[0-9]{1,9})(?![0-9])")
_BY_LETTER = {"a": "lower-alpha", "A": "upper-alpha", "i": "lower-roman", "I": "upper-roman", "1": "decimal"}
_BULLETS = ("disc", "circle", "square", "none")


def number_items(tree: _Element) -> None:
    """Put its number on each item of a list that has them. `type` of lists and items: as HTML or a style names it, or
    on an item a quote and the number itself."""
    for item in tree.iter("li"):
        item.attrib.pop(_LABEL, None)
        if (type_ := item.get("type", "")).startswith("'"):
            item.set(_LABEL, type_[1:])
        if _integer(item, "value") is None:
            item.attrib.pop("value", None)  # the renderer would fail on one that is no number
    for list_ in tree.iter("ol", "ul"):
        if list_.tag == "ol" or _type(list_) in OF_HTML:
            _number_items(list_)


def start_item(state: HtmlDocumentState, attributes: Mapping[str, str]) -> None:
    """Have the renderer write an item's number."""
    li_start_handler(state, attributes)
    if (label := attributes.get(_LABEL)) is not None:
        state.tags[-1].list_bullet = f"{label} " if label else ""


def _number_items(list_: _Element) -> None:
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


def _type(element: _Element) -> str:
    name: str = element.get("type", "")
    return _BY_LETTER.get(name, name.lower())


def _integer(element: _Element, name: str) -> int | None:
    match = _INTEGER.match(element.get(name, ""))
    return int(match[1]) if match else None
