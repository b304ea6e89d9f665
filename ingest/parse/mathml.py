"""Formulas in MathML as a line of text, like the equations of Office documents: `(x+1)/2`, `x_i^n`, `√(x+y)`."""

from collections.abc import Iterable

from lxml.etree import Entity, _Element, iterwalk

from ingest.parse.equations import is_one

_LEFT_OUT = ("annotation", "annotation-xml")
_OPERATOR = "mo"
_TOKENS = ("mi", "mn", _OPERATOR, "mtext", "ms")
_NO_BAR = ("0", "0pt", "0px", "0em")
_MAX_DEPTH = 50  # a line is written by recursion


def write_formulas(tree: _Element) -> None:
    """Replace the markup in each formula by its line. One that is nested too deeply, or holds entities that are not
    declared, stays as it is."""
    for formula in list(tree.iter("{*}math")):
        if len(formula) and _depth(formula) <= _MAX_DEPTH and next(formula.iter(Entity), None) is None:
            line = _line(formula)
            formula.clear(keep_tail=True)
            formula.text = line


def _depth(formula: _Element) -> int:
    depth = deepest = 0
    for event, _ in iterwalk(formula, events=("start", "end")):
        depth += 1 if event == "start" else -1
        deepest = max(deepest, depth)
    return deepest


def _line(element: _Element) -> str:
    children = [child for child in element.iterchildren("*") if _name(child) not in _LEFT_OUT]
    if not children or _name(element) in _TOKENS:
        return " ".join("".join(element.itertext()).split())
    parts = [_line(child) for child in children]
    match _name(element), parts:
        case "mfrac", [top, bottom]:
            has_bar = element.get("linethickness") not in _NO_BAR
            line = f"{_whole(top)}/{_whole(bottom)}" if has_bar else f"{top}; {bottom}"
        case "msqrt", _:
            line = f"√{_whole(_joined(parts))}"
        case "mroot", [base, degree]:
            line = f"√[{degree}]{_whole(base)}"
        case ("msup", [base, _]) | ("msub", [base, _]) | ("msubsup" | "munderover", [base, _, _]):
            signs = "^" if _name(element) == "msup" else "_^"
            raised = (f"{sign}{_whole(part)}" for sign, part in zip(signs, parts[1:], strict=False) if part)
            line = "".join([base if _name(children[0]) == _OPERATOR else _whole(base), *raised])
        case "mtable", _:
            line = "; ".join(parts)
        case "mtr", _:
            line = ", ".join(parts)
        case _:
            line = _joined(parts)
    return line


def _joined(parts: Iterable[str]) -> str:
    """Parts side by side, two numbers apart."""
    line = ""
    for part in parts:
        line += f" {part}" if line[-1:].isdecimal() and part[:1].isdecimal() else part
    return line


def _whole(line: str) -> str:
    """The line in parentheses, unless it is a letter, a number or in brackets."""
    return line if is_one(line) or _is_bracketed(line) else f"({line})"


def _is_bracketed(line: str) -> bool:
    depth = 0
    for place, sign in enumerate(line):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return place > 0 and place == len(line) - 1
    return False


def _name(element: _Element) -> str:
    return str(element.tag).rpartition("}")[2]
