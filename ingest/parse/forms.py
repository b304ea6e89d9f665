"""Controls of HTML forms as text: ticks before their labels, and the values of fields in their places."""

from collections.abc import Iterator
from itertools import chain, islice

from lxml.etree import _Element

_TICKED = ("checkbox", "radio")
_WITHOUT_WORDS = ("hidden", "submit", "button", "reset", "image", "password", "file", "color", "range")
_ROLES = "//*[@aria-checked and (@role='checkbox' or @role='radio' or @role='switch')]"
_MAX_LEVELS = 8  # between a control and the label that it stands in
_MAX_CHARS = 1_000  # of a label, before its first word


def write_forms(tree: _Element) -> None:
    """Make words of the controls: `[x]` or `[ ]` before the label of what can be ticked, the value of a field, and of
    a list the options that are selected."""
    labels = {label.get("for"): label for label in tree.iter("label") if label.get("for")}
    ticked: set[_Element] = set()
    for control in list(tree.iter("input", "select", "textarea")):
        if control.tag == "input" and control.get("type", "").lower() in _TICKED:
            around = {element.tag: element for element in islice(control.iterancestors(), _MAX_LEVELS)}
            if control.get("role", "checkbox") in _TICKED and "pre" not in around:
                label = labels.get(control.get("id"), around.get("label"))
                _tick(control, label, ticked, is_ticked="checked" in control.attrib)
        elif value := " ".join(_values(control)).strip():
            del control[:]
            control.tag, control.text = "span", f" {value} "
    for element in tree.xpath(_ROLES):
        if element.tag != "input":
            _tick(element, element, ticked, is_ticked=element.get("aria-checked") == "true")


def _tick(control: _Element, label: _Element | None, ticked: set[_Element], *, is_ticked: bool) -> None:
    """Write the tick before the words of the label, or else in the control's place."""
    if label is None or label in ticked or not _has_words(label):
        label = control
        control.tag = "span"
    ticked.add(label)
    label.text = f" {'[x]' if is_ticked else '[ ]'} {label.text or ''}"


def _has_words(label: _Element) -> bool:
    return any(map(str.isalnum, islice(chain.from_iterable(label.itertext()), _MAX_CHARS)))


def _values(control: _Element) -> Iterator[str]:
    if control.tag == "select":
        yield from ("".join(option.itertext()) for option in control.iter("option") if "selected" in option.attrib)
    elif control.tag == "textarea":
        yield "".join(control.itertext())
    elif control.get("type", "").lower() not in _WITHOUT_WORDS:
        yield control.get("value", "")
