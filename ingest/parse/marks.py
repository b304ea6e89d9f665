"""Marks for looks of words that change what they say: a sign before superscripts and subscripts of numbers, which text
without it would join to one (`10^6`, `1010_2`), and `~~` around what is struck out, as in Markdown, which else would
read as valid."""

import re
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from lxml.etree import Entity, _Element, iterwalk

SIGNS: Mapping[str, str] = {"sup": "^", "superscript": "^", "sub": "_", "subscript": "_"}
"""By the element, in HTML, JATS, DITA and DocBook."""
STRUCK_TAGS = ("del", "s", "strike")
_STRUCK = "~~"
_STARTS_WITH_NUMBER = re.compile(r"[+\-\u2212\u2013]?[0-9]")
_LINE = re.compile(r"\S(?:.*\S)?")


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look. sign: of those that are raised or lowered, one of SIGNS."""

    text: str
    sign: str = ""
    is_struck: bool = False


def text_of(runs: Iterable[Run]) -> str:
    """The text of the runs as one. A raised or lowered number has its sign where it follows a digit."""
    runs = list(runs)
    if not any(run.sign or run.is_struck for run in runs):
        return "".join(run.text for run in runs)
    signed: list[Run] = []
    preceding = sign = ""
    for run in (run for run in runs if run.text):
        is_number = run.sign != sign and _would_join(preceding, run.text)
        signed.append(replace(run, text=f"{run.sign}{run.text}") if is_number else run)
        preceding, sign = run.text[-1], run.sign
    groups = groupby(signed, key=lambda run: run.is_struck)
    words = (("".join(run.text for run in group), is_struck) for is_struck, group in groups)
    return "".join(struck(text) if is_struck else text for text, is_struck in words)


def struck(words: str) -> str:
    """The words of each line between marks, and the spaces around them outside."""
    return _LINE.sub(rf"{_STRUCK}\g<0>{_STRUCK}", words)


def sign_raised_numbers(tree: _Element, blocks: Container[str]) -> None:
    """Write a sign before each superscript or subscript that begins with a number and follows a digit. `blocks`: the
    names of elements that end a line."""
    preceding, sign = "", ""

    def read(words: str | None) -> str | None:
        nonlocal preceding, sign
        if not words:
            return words
        words, sign, preceding = f"{sign}{words}" if sign and _would_join(preceding, words) else words, "", words[-1]
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


def _would_join(preceding: str, words: str) -> bool:
    """Whether raised or lowered words would read as one number with what precedes them."""
    return preceding.isdecimal() and _STARTS_WITH_NUMBER.match(words) is not None


def mark_struck(tree: _Element, elements: Collection[_Element], blocks: Container[str]) -> None:
    """Put marks around the words in these elements. `blocks`: the elements that end a line, and a mark with it."""
    places: list[tuple[_Element, str]] = []
    depth = 0

    def close() -> None:
        if places:
            (element, name), (last, last_name) = places[0], places[-1]
            setattr(element, name, re.sub(r"\A\s*", rf"\g<0>{_STRUCK}", getattr(element, name)))
            words = getattr(last, last_name)
            end = len(words.rstrip())
            setattr(last, last_name, f"{words[:end]}{_STRUCK}{words[end:]}")
        places.clear()

    def read(element: _Element, name: str) -> None:
        if (words := getattr(element, name)) and not words.isspace():
            if depth:
                places.append((element, name))
            else:
                close()

    for event, element in iterwalk(tree, events=("start", "end")):
        if element.tag in blocks:
            close()
        if event == "start":
            depth += element in elements
            read(element, "text")
        else:
            depth -= element in elements
            read(element, "tail")
    close()
