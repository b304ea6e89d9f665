"""Signs for superscripts and subscripts of numbers, which text without them would join to one: `10^6`, `1010_2`."""

import re
from collections.abc import Mapping
from typing import Protocol

from lxml.etree import Entity, _Element, iterwalk

SIGNS: Mapping[str, str] = {"sup": "^", "superscript": "^", "sub": "_", "subscript": "_"}
"""By the element, in HTML, JATS, DITA and DocBook."""
_STARTS_WITH_NUMBER = re.compile(r"[+\-\u2212\u2013]?[0-9]")


def would_join(preceding: str, words: str) -> bool:
    """Whether raised or lowered words would read as one number with what precedes them."""
    return preceding.isdecimal() and _STARTS_WITH_NUMBER.match(words) is not None


class Names(Protocol):
    """A collection of element names."""

    def __contains__(self, name: object, /) -> bool: ...


def sign_raised_numbers(tree: _Element, blocks: Names) -> None:
    """Write a sign before each superscript or subscript that begins with a number and follows a digit. `blocks`: the
    elements that end a line."""
    preceding, sign = "", ""

    def read(words: str | None) -> str | None:
        nonlocal preceding, sign
        if not words:
            return words
        words, sign, preceding = f"{sign}{words}" if sign and would_join(preceding, words) else words, "", words[-1]
        return words

    for event, element in iterwalk(tree, events=("start", "end")):
        name = str(element.tag).rpartition("}")[2]
        if name in blocks or element.tag is Entity:
            preceding = sign = ""
        if event == "start" and element.tag is not Entity:
            sign = SIGNS.get(name, sign)
            element.text = read(element.text)
        elif event == "end":
            sign = "" if name in SIGNS else sign
            element.tail = read(element.tail)
