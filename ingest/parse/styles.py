"""Styles of an HTML page, as far as they change what its text says: from `style` attributes and from the simple
selectors of style sheets (`p`, `.note`, `#memo`, `p.note`)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product

from lxml.etree import _Element

_SHEETS = "//style[not(ancestor::noscript or ancestor::svg or ancestor::template)]"
_MAX_SHEET_CHARS, _MAX_SELECTOR_CHARS, _MAX_VALUE_CHARS = 1_000_000, 200, 100
_MAX_SELECTORS, _MAX_STYLES, _MAX_NESTING = 50_000, 10_000, 4
_IGNORED = re.compile(r"/\*.*?(?:\*/|\Z)|\"[^\"\n]*\"|'[^'\n]*'|<!--|-->", re.DOTALL)
_BRACE = re.compile(r"[{}]")
_ON_SCREEN = re.compile(r"(?:@media\b)?\s*+(?:(?:only\s+)?screen|all)?\s*", re.IGNORECASE)
_SIMPLE = re.compile(r"([\w-]*)((?:[.#][\w-]+)?)")
_CONDITION = re.compile(r":[\w-]+(?:\([^()]*\))?|\[[^][]*\]")
_BETWEEN = re.compile(r"[\s>+~]+")
_NAME = re.compile(r"[.#][\w-]+")
_OF_A_PART = re.compile(r"::|:(?:before|after|first-l)")
_QUALIFIER = re.compile(r"[.:[]")
_SCRIPTED = re.compile(r"[\"'][.#]?([\w-]{1,100})[\"']")
_COLON = "\u02d0"  # stands for one that is escaped, as in Tailwind's names
_SIDES, _SIZES = ("left", "right", "top", "bottom"), ("width", "height", "max-width", "max-height")
_PADDINGS = ("padding", "padding-top", "padding-bottom")
_PROPERTIES = (
    *_SIDES, *_SIZES, *_PADDINGS, "display", "visibility", "opacity", "font-size", "position", "text-indent",
    "overflow", "clip", "clip-path", "transition", "animation", "vertical-align", "text-decoration",
    "text-decoration-line", "list-style", "list-style-type",
)  # fmt: skip
_HIDING = re.compile(r"none|hidden|collapse|-|0(?![.\d]*[1-9])")
_ZERO = re.compile(r"0*(?:\.0*)?(?<=0)(?:[a-z]+|%)?")
_RELATIVE = re.compile(r"[\d.]+(?:em|%)|smaller|larger|inherit")
_FAR = re.compile(r"-(?:[5-9]\d\d|\d{4,})")
_CUT = re.compile(r"rect\((?:[01](?:px)?[,\s]*){4}\)|inset\((?:50|100)%")
_NUMBERING = re.compile(r"(?:lower|upper)-(?:alpha|latin|roman)|decimal(?:-leading-zero)?|disc|circle|square|none")
_COUNTER = re.compile(r"\bcounters?\(")
_INLINE = (1_000, 0, 0, 0)  # weighs more than any selector

Declared = dict[str, tuple[bool, str]]
Rules = dict[str, tuple[tuple[bool, tuple[int, int, int, int]], str]]
"""Values by the names of properties, each with its weight."""


@dataclass(frozen=True, slots=True)
class Style:
    """The style of an element. is_hidden: nothing in it is shown. is_invisible, is_sizeless: its words are not shown,
    nor are those of elements in it that do not say otherwise; None: as around it. raised: `sup` or `sub`. numbering:
    the type of list items' numbers."""

    is_hidden: bool = False
    is_invisible: bool | None = None
    is_sizeless: bool | None = None
    is_struck: bool = False
    raised: str | None = None
    numbering: str | None = None

    def inside(self, is_invisible: bool, is_sizeless: bool) -> tuple[bool, bool]:
        """Whether the element's words are invisible, and without size, where those around it are or not."""
        return (
            is_invisible if self.is_invisible is None else self.is_invisible,
            is_sizeless if self.is_sizeless is None else self.is_sizeless,
        )


class Sheet:
    """A style sheet. `certain` rules hold, `possible` ones may: those of selectors that are not simple, and those for
    certain screens. They are kept where they may show what others hide. order: of its first rule among all sheets'."""

    def __init__(self, source: str, order: int = 0) -> None:
        self.certain: dict[str, Rules] = {}
        self.possible: dict[str, Rules] = {}
        for number, (selector, declared, holds) in enumerate(islice(_selectors(source), _MAX_SELECTORS), start=order):
            match = _SIMPLE.fullmatch(selector)
            subjects: list[str] = []  # names of the elements that it is of, if it is of whole ones
            if match:
                subjects = [f"{match[1].lower()}{match[2]}"]
            elif len(selector) <= _MAX_SELECTOR_CHARS and not _OF_A_PART.search(selector):
                subject = _BETWEEN.split(_CONDITION.sub("", selector))[-1]
                subjects = _NAME.findall(subject) or [subject.lower()]
            weight = selector.count("#"), len(_QUALIFIER.findall(selector)), len(selector.split()), number
            rules = self.certain if match and holds else self.possible
            for subject, (name, (is_important, value)) in product(subjects, declared.items()):
                if rules is self.certain or not _HIDING.match(value):
                    _add(rules.setdefault(subject, {}), name, ((is_important, weight), value))
        self.names = {re.split("[.#]", subject)[-1] for subject in self.certain}
        """The classes and ids that rules hold for, and elements."""
        self.has_counters = _COUNTER.search(source) is not None
        """It numbers elements, which may be the items of lists."""


class Styles:
    """The styles of a page's elements, by its own sheets and those shared with other pages.

    A sheet's rule that hides is not followed where a rule that may hold shows the element, nor where a script of the
    page names its class or id: its words are shown at a click.
    """

    def __init__(self, tree: _Element, shared: Sheet | None = None) -> None:
        sources = (style.text or "" for style in tree.xpath(_SHEETS) if _is_for_screens(style.get("media", "")))
        self._sheets = [*((shared,) if shared else ()), Sheet("\n".join(sources), _MAX_SELECTORS)]
        words = (match[1] for script in tree.iter("script") for match in _SCRIPTED.finditer(script.text or ""))
        self._scripted = {word for word in words if any(word in sheet.names for sheet in self._sheets)}
        self._style = lru_cache(_MAX_STYLES)(self._computed)

    def of(self, element: _Element) -> Style:
        attributes = element.attrib
        id_ = attributes.get("id", "")
        if not any(id_ in sheet.names for sheet in self._sheets):
            id_ = ""
        return self._style(element.tag, id_, attributes.get("class", ""), attributes.get("style", ""))

    def _computed(self, tag: str, id_: str, classes: str, inline: str) -> Style:
        names = classes.replace(":", _COLON).split()
        keys = [tag, *(f"{start}.{name}" for name in names for start in ("", tag))]
        keys += [f"#{id_}", f"{tag}#{id_}"] if id_ else []
        rules = {name: ((important, _INLINE), value) for name, (important, value) in _declared(inline).items()}
        alone = _style_of(rules)
        self._merge(rules, (sheet.certain for sheet in self._sheets), keys)
        style = shown = _style_of(rules)
        if not self._scripted.isdisjoint((*names, id_)):
            shown = alone
        elif style.is_hidden or style.is_invisible or style.is_sizeless:
            self._merge(rules, (sheet.possible for sheet in self._sheets), keys)
            shown = _style_of(rules)
        if style.numbering == "none" and any(sheet.has_counters for sheet in self._sheets):
            style = replace(style, numbering=None)
        return replace(style, is_hidden=shown.is_hidden, is_invisible=shown.is_invisible, is_sizeless=shown.is_sizeless)

    def _merge(self, rules: Rules, sheets: Iterable[dict[str, Rules]], keys: Iterable[str]) -> None:
        for sheet in sheets:
            for key in keys:
                for name, rule in sheet.get(key, {}).items():
                    _add(rules, name, rule)


def _add(rules: Rules, name: str, rule: tuple[tuple[bool, tuple[int, int, int, int]], str]) -> None:
    if name not in rules or rules[name][0] <= rule[0]:
        rules[name] = rule


def _selectors(source: str) -> Iterator[tuple[str, Declared, bool]]:
    """Selectors with their declarations, and whether these hold on any screen."""
    css = _IGNORED.sub(" ", source[:_MAX_SHEET_CHARS]).replace("\\:", _COLON)
    around: list[str] = []
    position = 0
    for brace in _BRACE.finditer(css):
        words, position = css[position : brace.start()], brace.end()
        if brace[0] == "{":
            around.append(words.rpartition(";")[2].strip())
        elif around:
            selectors = around.pop()
            holds = len(around) <= _MAX_NESTING and all(map(_is_for_screens, around))
            declared = _declared(words)
            yield from ((selector.strip(), declared, holds) for selector in selectors.split(",") if declared)


def _is_for_screens(condition: str) -> bool:
    return len(condition) <= _MAX_SELECTOR_CHARS and _ON_SCREEN.fullmatch(condition) is not None


def _declared(block: str) -> Declared:
    """Values by the names of properties, each with whether it is important. The last of several holds."""
    declared: Declared = {}
    for declaration in block.split(";"):
        name, _, value = declaration.partition(":")
        if (name := name.strip().lower()) in _PROPERTIES:
            words, _, important = value[:_MAX_VALUE_CHARS].lower().partition("!")
            declared[name] = important.strip() == "important", words.strip()
    return declared


def _style_of(rules: Rules) -> Style:
    value = {**dict.fromkeys(_PROPERTIES, ""), **{name: words for name, (_, words) in rules.items()}}
    is_still = all(value[name] in ("", "none") for name in ("transition", "animation"))
    is_sizeless = bool(_ZERO.fullmatch(value["font-size"]))
    takes_size = not value["font-size"] or (_RELATIVE.fullmatch(value["font-size"]) and not is_sizeless)
    numbering = _NUMBERING.search(f"{value['list-style-type']} {value['list-style']}")
    is_apart = value["position"] in ("absolute", "fixed")
    is_moved = is_apart or value["position"] == "relative"
    is_cut = value["overflow"] in ("hidden", "clip") and not any(value[name] for name in _PADDINGS)
    is_out_of_sight = (  # transparent, far off the page, or cut to nothing
        _ZERO.fullmatch(value["opacity"])
        or _FAR.match(value["text-indent"])
        or (is_moved and any(_FAR.match(value[name]) for name in _SIDES))
        or (is_apart and _CUT.search(f"{value['clip']} {value['clip-path']}"))
        or (is_cut and any(_ZERO.fullmatch(value[name]) for name in _SIZES))
    )
    return Style(
        is_hidden=value["display"] == "none" or (is_still and bool(is_out_of_sight)),
        is_invisible={"hidden": True, "collapse": True, "visible": False}.get(value["visibility"]),
        is_sizeless=None if takes_size else is_sizeless,
        is_struck="line-through" in value["text-decoration"] + value["text-decoration-line"],
        raised={"super": "sup", "sub": "sub"}.get(value["vertical-align"]),
        numbering=numbering[0] if numbering else None,
    )
