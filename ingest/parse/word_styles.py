"""Properties of words in a Word document that are on or off, such as hidden or struck, through its styles (ECMA-376
part 1, 17.7.3)."""

from collections.abc import Iterator

from lxml.etree import QName, _Element

_MAX_LINKS = 10  # from a style to those that it is based on
_OFF, _DEFAULT = ("0", "false", "off"), ("1", "true", "on")


class Switches:
    """Properties of runs: those of the run itself, or else of its styles, of which a second one switches back."""

    def __init__(self, styles: _Element | None, *names: str) -> None:
        entries = () if styles is None else styles.iterchildren("{*}style")
        self._styles = {value_of(style, "styleId"): style for style in entries}
        self._names = names
        self._on: dict[str, frozenset[str]] = {}
        """By style, the properties that it switches on."""
        paragraphs = ((key, style) for key, style in self._styles.items() if value_of(style, "type") == "paragraph")
        self._default = next((key for key, style in paragraphs if value_of(style, "default") in _DEFAULT), "")

    def of(self, run: _Element) -> frozenset[str]:
        """The names of the properties that are on."""
        properties = run.find("{*}rPr")
        paragraph = next(run.iterancestors("{*}p"), None)
        own = None if paragraph is None else paragraph.find("{*}pPr/{*}pStyle")
        on = self._of_style(self._default if own is None else value_of(own))
        if properties is None:
            return on
        if (style := properties.find("{*}rStyle")) is not None:
            on ^= self._of_style(value_of(style))
        direct = {name: is_on(properties.find(f"{{*}}{name}")) for name in self._names}
        return frozenset(name for name, value in direct.items() if (name in on if value is None else value))

    def _of_style(self, key: str) -> frozenset[str]:
        if key not in self._on:
            chain = list(self._based(key))
            values = {
                name: next(
                    (value for style in chain if (value := is_on(style.find(f"{{*}}rPr/{{*}}{name}"))) is not None),
                    False,
                )
                for name in self._names
            }
            self._on[key] = frozenset(name for name, value in values.items() if value)
        return self._on[key]

    def _based(self, key: str) -> Iterator[_Element]:
        """A style and those that it is based on."""
        for _ in range(_MAX_LINKS):
            if (style := self._styles.get(key)) is None:
                return
            yield style
            base = style.find("{*}basedOn")
            key = "" if base is None else value_of(base)


def is_on(element: _Element | None) -> bool | None:
    """The value of a property that is on or off; None where it is missing."""
    return None if element is None else value_of(element) not in _OFF


def value_of(element: _Element, name: str = "val") -> str:
    """An attribute in the namespace of its element."""
    return str(element.get(f"{{{QName(element).namespace}}}{name}", ""))
