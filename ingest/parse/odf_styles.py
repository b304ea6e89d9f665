"""Styles of OpenDocument files: which text they hide, strike, raise or lower."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from lxml.etree import _Element

from ingest.parse.marks import SIGNS

_URN = "urn:oasis:names:tc:opendocument:xmlns"
TABLE, TEXT, DRAW, STYLE, PRESENTATION = (
    f"{{{_URN}:{name}:1.0}}" for name in ("table", "text", "drawing", "style", "presentation")
)
_MAX_PARENTS = 20
_FAMILIES = {"span": "text", "a": "text", "p": "paragraph", "h": "paragraph", "page": "drawing-page"}
"""By the elements that have their styles; of others, their own names."""
_LINES = (f"{STYLE}text-line-through-style", f"{STYLE}text-line-through-type")
_POSITION = f"{STYLE}text-position"
_HIDING = {f"{TEXT}display": "none", f"{TABLE}display": "false", f"{PRESENTATION}visibility": "hidden"}
_READ = (*_LINES, _POSITION, *_HIDING)


@dataclass(frozen=True, slots=True)
class Look:
    """sign: of raised or lowered text, one of `marks.SIGNS`."""

    is_hidden: bool = False
    is_struck: bool = False
    sign: str = ""


class Styles:
    """The styles of the parts of a file, by family and name. One has the properties of its parents."""

    def __init__(self, parts: Iterable[_Element]) -> None:
        self._styles = {
            (style.get(f"{STYLE}family", ""), style.get(f"{STYLE}name", "")): style
            for part in parts
            for style in part.iterfind("{*}*/{*}style")
        }
        self._properties = cache(self._inherited)

    def look(self, element: _Element, inherited: Look) -> Look:
        """The look of an element within another."""
        namespace, _, name = str(element.tag).rpartition("}")
        is_hidden = inherited.is_hidden or self._is_hidden(element, name)
        style = element.get(f"{namespace}}}style-name")
        if style is not None and (properties := self._properties(_FAMILIES.get(name, name), style)):
            is_hidden |= any(properties.get(key) == value for key, value in _HIDING.items())
            lines = [properties[line] for line in _LINES if line in properties]
            is_struck = any(line != "none" for line in lines) if lines else inherited.is_struck
            sign = inherited.sign
            if _POSITION in properties:  # such as `super 58%` or `-33% 58%`
                height = properties[_POSITION].partition(" ")[0]
                is_raised = height.strip("-0.%") != ""
                sign = SIGNS.get(height) or SIGNS["sub" if height.startswith("-") else "sup"] * is_raised
            return Look(is_hidden, is_struck, sign)
        return Look(is_hidden, inherited.is_struck, inherited.sign) if is_hidden else inherited

    @staticmethod
    def _is_hidden(element: _Element, name: str) -> bool:
        """Whether an element says that it is hidden, whatever its style."""
        if name in ("p", "h"):
            return len(element) > 0 and any(
                mark.get(f"{TEXT}is-hidden") == "true" for mark in element.iterchildren(f"{TEXT}hidden-paragraph")
            )
        display = element.get(f"{TEXT}display")
        is_hidden = element.get(f"{TEXT}is-hidden") == "true" and (display == "condition" or name == "hidden-text")
        return is_hidden or "none" in (display, element.get(f"{DRAW}display"))

    def _inherited(self, family: str, name: str) -> dict[str, str]:
        chain: list[_Element] = []
        while len(chain) < _MAX_PARENTS and (style := self._styles.get((family, name))) is not None:
            chain.append(style)
            name = style.get(f"{STYLE}parent-style-name", "")
        properties: dict[str, str] = {}
        for style in reversed(chain):
            for group in style.iterchildren("*"):
                properties.update((str(key), str(value)) for key, value in group.attrib.items() if key in _READ)
        return properties
