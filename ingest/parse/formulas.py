"""Formulas as a line of text, such as `(x+1)/2`, `x_i^n` and `√(x+y)`: the equations of Office documents (OMML,
ECMA-376 part 1, 22.1), and MathML."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from lxml.etree import Entity, QName, XPath, _Element, iterwalk

_OUTERMOST = XPath("//*[local-name()='oMath'][not(ancestor::*[local-name()='oMath'])]")
_SIGNS = {
    ("f", "den"): "/", ("limLow", "lim"): "_", ("limUpp", "lim"): "^", ("nary", "e"): " ", ("func", "e"): " ",
    **{(name, "sub"): "_" for name in ("sSub", "sSubSup", "sPre", "nary")},
    **{(name, "sup"): "^" for name in ("sSup", "sSubSup", "sPre", "nary")},
}  # fmt: skip
"""By element and part: what stands before the part."""
_WHOLE = {
    *_SIGNS, ("f", "num"), ("sSub", "e"), ("sSup", "e"), ("sSubSup", "e"), ("sPre", "e"), ("rad", "e"),
} - {("nary", "e"), ("func", "e")}  # fmt: skip
"""Parts that are in parentheses where they are more than a letter, a number or something in brackets."""
_BETWEEN = {"m": "; ", "noBar": "; ", "mr": ", ", "eqArr": "; "}
_LEFT_OUT = ("del", "moveFrom")
_LONGEST_NUMBER = 20
_ANNOTATIONS = ("annotation", "annotation-xml")
_OPERATOR = "mo"
_TOKENS = ("mi", "mn", _OPERATOR, "mtext", "ms")
_NO_BAR = ("0", "0pt", "0px", "0em")
_MAX_DEPTH = 50  # a line is written by recursion


def emptied_equations(root: _Element) -> Iterator[tuple[_Element, str]]:
    """Each equation's element, emptied for its line to stand there, and the line."""
    for equation in _OUTERMOST(root):
        pieces: list[str] = []
        _write(equation, pieces)
        equation.clear(keep_tail=True)
        yield equation, "".join(pieces)


def _write(element: _Element, pieces: list[str]) -> None:
    name = _name(element)
    begin, between, end = _around(element, name)
    pieces += filter(None, [begin])
    is_first = True
    for part in _parts(element):
        part_name = _name(part)
        if part_name == "t":
            pieces += filter(None, [part.text])
        else:
            pieces += filter(None, ["" if is_first else between])
            is_first = False
            _write_part(part, (name, part_name), pieces)
    pieces += filter(None, [end])


def _write_part(part: _Element, place: tuple[str, str], pieces: list[str]) -> None:
    """Write a part with its sign and parentheses, or nothing for an empty one."""
    start = len(pieces)
    _write(part, pieces)
    if len(pieces) == start:
        return
    is_single = len(pieces) == start + 1 and _is_one(pieces[start])
    inside = list(_parts(part))  # one pair of delimiters may hold the whole part
    is_bracketed = [_name(child) for child in inside] == ["d"] and "" not in _around(inside[0], "d")[::2]
    if place == ("rad", "deg"):
        _enclose(pieces, start, "[]")
    elif place in _WHOLE and not is_single and not is_bracketed:
        _enclose(pieces, start, "()")
    if sign := _SIGNS.get(place):
        pieces.insert(start, sign)


def _name(element: _Element) -> str:
    """The local name; `noBar` for a fraction without its bar, such as a binomial coefficient."""
    name = QName(element).localname
    return "noBar" if name == "f" and _property(element, "type", "bar") == "noBar" else name


def _parts(element: _Element) -> Iterator[_Element]:
    """The children that are text or hold it."""
    for child in element.iterchildren("*"):
        name = QName(child).localname
        if not name.endswith("Pr") and name not in _LEFT_OUT:
            yield child


def _is_one(text: str) -> bool:
    """Whether the text is a letter or a number."""
    return (len(text) == 1 and text.isalpha()) or (len(text) <= _LONGEST_NUMBER and text.isdecimal())


def _enclose(pieces: list[str], start: int, brackets: str) -> None:
    pieces.insert(start, brackets[0])
    pieces.append(brackets[1])


def _around(element: _Element, name: str) -> tuple[str, str, str]:
    """The signs before an element, between its parts, and after it."""
    match name:
        case "rad":
            return "√", "", ""
        case "nary":
            return _property(element, "chr", "∫"), "", ""
        case "acc":
            return "", "", _property(element, "chr", "\u0302")
        case "bar":
            return "", "", "\u0305" if _property(element, "pos", "bot") == "top" else "\u0332"
        case "d":
            begin, between = _property(element, "begChr", "("), _property(element, "sepChr", "|")
            return begin, between, _property(element, "endChr", ")")
    return "", _BETWEEN.get(name, ""), ""


def _property(element: _Element, name: str, default: str) -> str:
    property_element = element.find(f"{{*}}{QName(element).localname}Pr/{{*}}{name}")
    return next(iter(property_element.attrib.values()), default) if property_element is not None else default


def write_formulas(tree: _Element) -> None:
    """Replace the markup in each formula by its line. One that is nested too deeply, or holds entities that are not
    declared, stays as it is."""
    for formula in list(tree.iter("{*}math")):
        depths = accumulate(1 if event == "start" else -1 for event, _ in iterwalk(formula, events=("start", "end")))
        if len(formula) and max(depths) <= _MAX_DEPTH and next(formula.iter(Entity), None) is None:
            line = _line(formula)
            formula.clear(keep_tail=True)
            formula.text = line


def _line(element: _Element) -> str:
    children = [child for child in element.iterchildren("*") if _local_name(child) not in _ANNOTATIONS]
    if not children or _local_name(element) in _TOKENS:
        return " ".join("".join(element.itertext()).split())
    parts = [_line(child) for child in children]
    match _local_name(element), parts:
        case "mfrac", [top, bottom]:
            has_bar = element.get("linethickness") not in _NO_BAR
            line = f"{_whole(top)}/{_whole(bottom)}" if has_bar else f"{top}; {bottom}"
        case "msqrt", _:
            line = f"√{_whole(_joined(parts))}"
        case "mroot", [base, degree]:
            line = f"√[{degree}]{_whole(base)}"
        case ("msup", [base, _]) | ("msub", [base, _]) | ("msubsup" | "munderover", [base, _, _]):
            signs = "^" if _local_name(element) == "msup" else "_^"
            raised = (f"{sign}{_whole(part)}" for sign, part in zip(signs, parts[1:], strict=False) if part)
            line = "".join([base if _local_name(children[0]) == _OPERATOR else _whole(base), *raised])
        case "mtable", _:
            line = "; ".join(parts)
        case "mtr", _:
            line = ", ".join(parts)
        case _:
            line = _joined(parts)
    return line


def _joined(parts: Iterable[str]) -> str:
    """Parts side by side, two numbers apart, and what is raised or lowered from a letter or number behind it."""
    line = preceding = ""
    for part in parts:
        is_apart = preceding[-1:].isdecimal() and part[:1].isdecimal()
        is_raised = not {"^", "_"}.isdisjoint(preceding) and preceding[-1].isalnum() and part[:1].isalnum()
        line += f" {part}" if is_apart or is_raised else part
        preceding = part or preceding
    return line


def _whole(line: str) -> str:
    """The line in parentheses, unless it is a letter, a number or in brackets."""
    depths = accumulate((sign in "([{") - (sign in ")]}") for sign in line)
    end = next((place for place, depth in enumerate(depths) if not depth), 0)
    return line if _is_one(line) or 0 < end == len(line) - 1 else f"({line})"


def _local_name(element: _Element) -> str:
    return str(element.tag).rpartition("}")[2]
