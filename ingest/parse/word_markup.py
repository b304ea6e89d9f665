"""The markup of a Word document, in elements that the converter to HTML reads: it would leave out or misread equations,
text boxes, descriptions of pictures, charts, embedded files, chosen values of forms, hidden and struck words."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from lxml import etree
from lxml.etree import Element, QName, SubElement, _Element

from ingest.parse.archive import Archive, Relation
from ingest.parse.composer import FIELD, PAGE_NUMBER, line_without_fields
from ingest.parse.formulas import emptied_equations
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.pictures import described, read_chart
from ingest.parse.rows import lines_of_table
from ragkv.errors import Rejected

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_NAMESPACES = (W, "http://purl.oclc.org/ooxml/wordprocessingml/main")
_SAME = {
    "bdo": "smartTag", "dir": "smartTag", "fldSimple": "smartTag", "ruby": "smartTag", "rubyBase": "smartTag",
    "hyperlink": "smartTag", "cr": "br", "ptab": "tab",
}  # fmt: skip
"""Elements that the library leaves out with all that is in them, or fails on, by one that it reads as is meant."""
_SYMBOL_FONTS = ("Symbol", "Webdings", "Wingdings", "Wingdings 2", "Wingdings 3")
_FIELD = ("fldChar", "instrText", "rPr")
_REFERENCE = re.compile(r"\{[^}]*/relationships\}")
_MAX_LINKS = 10  # from a style to those that it is based on
_HEADING = re.compile(r"title|heading(?: ([1-9]))?", re.IGNORECASE)
_OUTLINE_LEVELS, _MAX_HEADING_CHARS = tuple("012345678"), 200
_OFF, _DEFAULT = ("0", "false", "off"), ("1", "true", "on")


class Rewriter:
    """Rewrites the parts of one document. `read_file` gives the text of an embedded file, by its name."""

    def __init__(
        self, archive: Archive, styles: _Element | None, omissions: Omissions, read_file: Callable[[str, bytes], Parsed]
    ) -> None:
        self._archive, self._omissions, self._read_file = archive, omissions, read_file
        self._switches = _Switches(styles, "vanish", "strike", "dstrike")
        self._parts_read: set[str] = set()

    def rewrite(self, root: _Element, path: str) -> None:
        """Rewrite the part at the path in place."""
        _choose_alternatives(root)
        for equation, line in emptied_equations(root):
            equation.tag = f"{{{W}}}r"
            SubElement(equation, f"{{{W}}}t").text = line
        for paragraph in root.iter("{*}oMathPara"):
            paragraph.tag = f"{{{W}}}smartTag"
        for namespace in _NAMESPACES:
            for element in root.iter(*(f"{{{namespace}}}{name}" for name in _SAME)):
                element.tag = f"{{{namespace}}}{_SAME[QName(element).localname]}"
        _write_skipped_columns(root)
        self._rewrite_runs(root)
        relations = self._archive.relations(path)
        for element in reversed(list(root.iter("{*}drawing", "{*}pict", "{*}object"))):  # the innermost first
            shown = [*_drawn(element), *self._referred(element, relations)]
            element.clear(keep_tail=True)
            element.tag = f"{{{W}}}pict"  # shown after its paragraph
            element.extend(shown)
        for element in list(root.iter("{*}altChunk")):
            element.extend(self._referred(element, relations))
            element.tag = f"{{{W}}}smartTag"

    def _rewrite_runs(self, root: _Element) -> None:
        hidden = {run for row in root.iter("{*}tr") if is_on(row.find("{*}trPr/{*}hidden")) for run in row.iter("{*}r")}
        for run in list(root.iter(*(f"{{{namespace}}}r" for namespace in _NAMESPACES))):
            switches = self._switches.of(run)
            if ("vanish" in switches or run in hidden) and self._omissions.leaves_out(_words(run)):
                for child in [child for child in run if QName(child).localname not in _FIELD]:
                    run.remove(child)
            _strike(run, bool({"strike", "dstrike"} & switches))
            for choice in run.findall("{*}fldChar/{*}ffData/{*}ddList"):  # the field alone says the chosen entry
                entries = list(map(value_of, choice.iterfind("{*}listEntry")))
                result = choice.find("{*}result") if choice.find("{*}result") is not None else choice.find("{*}default")
                number = "0" if result is None else value_of(result)
                if number.isdecimal() and int(number[:9]) < len(entries):
                    SubElement(run, f"{{{W}}}t").text = entries[int(number[:9])]
            _write_symbols(run)

    def _referred(self, element: _Element, relations: Mapping[str, Relation]) -> Iterator[_Element]:
        """The text of charts, diagrams and files that an element refers to, as paragraphs and tables."""
        references = (
            value for node in element.iter("*") for name, value in node.attrib.items() if _REFERENCE.match(name)
        )
        for path, kind in {relations[key].path: relations[key].kind for key in references if key in relations}.items():
            if path in self._parts_read or kind not in ("chart", "diagramData", "aFChunk", "package"):
                continue
            self._parts_read.add(path)
            with suppress(Rejected, etree.XMLSyntaxError):  # a part that is missing or damaged: shown without it
                if kind == "chart":
                    title, rows = read_chart(self._archive.xml(path))
                    yield from map(_paragraph, [title, *_pieces("\n".join(lines_of_table(rows)))])
                elif kind == "diagramData":
                    yield from map(_paragraph, map(_words, self._archive.xml(path).iter("{*}pt")))
                else:
                    yield from _blocks(self._read_file(path, self._archive.read(path)))


def without_repeated(root: _Element, lines: set[str]) -> Iterator[_Element]:
    """The contents of a header or footer, without page numbers and the lines that were read, to which its own are
    added."""
    for paragraph in list(root.iter("{*}p")):
        if paragraph.find(".//{*}p") is None:
            words = _with_fields(paragraph)
            line = line_without_fields(words)
            if line in lines:
                paragraph.getparent().remove(paragraph)
            elif FIELD in words:
                paragraph.getparent().replace(paragraph, _paragraph(line))
            lines.add(line)
    yield from list(root)


def mark_headings(document: _Element, styles: _Element | None) -> None:
    """Give the style of a heading to paragraphs of text that have a level in the outline of their own or by a style
    which is based on a heading's: the converter knows those styles by their names alone. In tables it is left to
    these names, as styles of labels are based on headings, too."""
    entries = styles_of(styles)
    for paragraph in document.iter("{*}p"):
        properties = paragraph.find("{*}pPr")
        if properties is None or next(paragraph.iterancestors("{*}tbl"), None) is not None:
            continue
        level = _outline_level(properties, with_bases(entries, value_at(properties, "{*}pStyle") or ""))
        if level is not None and len(line_of(paragraph)) <= _MAX_HEADING_CHARS:
            style = properties.find("{*}pStyle")
            style = SubElement(properties, f"{{{W}}}pStyle") if style is None else style
            style.set(f"{{{QName(style).namespace}}}val", f"Heading{min(level + 1, 6)}")


def _outline_level(properties: _Element, styles: Sequence[_Element]) -> int | None:
    """The level of a paragraph in the outline, from 0. None for one without, or whose own style has a name that the
    converter knows."""
    names = [value_at(style, "{*}name") or "" for style in styles]
    if names and _HEADING.fullmatch(names[0]):
        return None
    for element, name in zip([properties, *(style.find("{*}pPr") for style in styles)], ["", *names], strict=True):
        outline = None if element is None else element.find("{*}outlineLvl")
        if outline is not None:
            level = value_of(outline)
            return int(level) if level in _OUTLINE_LEVELS else None
        if heading := _HEADING.fullmatch(name):
            return int(heading[1]) - 1 if heading[1] else None
    return None


def line_of(paragraph: _Element) -> str:
    """The words of a paragraph on one line."""
    return " ".join(_words(paragraph).split())


def _words(element: _Element) -> str:
    return "".join(text.text or "" for text in element.iter("{*}t"))


def _with_fields(paragraph: _Element) -> str:
    """The words of a paragraph, with a sign for each page number."""
    pieces: list[str] = []
    instruction, is_result = "", False
    fields = (node for node in paragraph.iter("{*}smartTag") if PAGE_NUMBER.search(value_of(node, "instr")))
    numbers = {text for node in fields for text in node.iter("{*}t")}
    for node in paragraph.iter("{*}t", "{*}tab", "{*}instrText", "{*}fldChar"):
        match QName(node).localname:
            case "t":
                pieces.append(FIELD if is_result or node in numbers else node.text or "")
            case "tab":
                pieces.append("\t")
            case "instrText":
                instruction += node.text or ""
            case "fldChar":
                is_result = value_of(node, "fldCharType") == "separate" and bool(PAGE_NUMBER.search(instruction))
                instruction = "" if value_of(node, "fldCharType") == "begin" else instruction
    return "".join(pieces)


def _choose_alternatives(root: _Element) -> None:
    """Keep of each choice the alternative for old programs, or the first other one where that has no words."""
    for element in list(root.iter("{*}AlternateContent")):
        branches = [*element.iterchildren("{*}Fallback"), *element.iterchildren("{*}Choice")]
        shown = next((branch for branch in branches if _words(branch).strip()), branches[-1] if branches else None)
        for branch in branches:
            if branch is not shown:
                element.remove(branch)
        for branch in (element, *element):
            branch.tag = f"{{{W}}}smartTag"


def _drawn(element: _Element) -> Iterator[_Element]:
    """The contents of the text boxes of a drawing, and descriptions of pictures (alt text)."""
    walk = etree.iterwalk(element, events=("start",), tag="{*}txbxContent")
    for _, box in walk:
        walk.skip_subtree()
        yield from list(box)
    named = (node.get("descr") or node.get("title") for node in element.iter("{*}docPr", "{*}cNvPr"))
    lines = dict.fromkeys(map(described, [*named, *element.xpath(".//@alt")]))
    yield from map(_paragraph, filter(None, lines))


def _blocks(parsed: Parsed) -> Iterator[_Element]:
    """A document's headings and paragraphs."""
    position = 0
    for section in parsed.sections:
        yield from map(_paragraph, _pieces(parsed.text[position : section.start]))
        yield _paragraph(section.title, f"Heading{min(section.level, 6)}")
        position = section.body
    yield from map(_paragraph, _pieces(parsed.text[position:]))


def _pieces(text: str) -> Iterator[str]:
    yield from filter(None, map(str.strip, text.split("\n\n")))


def _paragraph(words: str, style: str = "") -> _Element:
    paragraph = _made("p")
    if style:
        SubElement(SubElement(paragraph, f"{{{W}}}pPr"), f"{{{W}}}pStyle").set(f"{{{W}}}val", style)
    run = SubElement(paragraph, f"{{{W}}}r")
    for number, line in enumerate(words.split("\n")):
        if number:
            SubElement(run, f"{{{W}}}br")
        SubElement(run, f"{{{W}}}t").text = line
    return paragraph


def _strike(run: _Element, is_struck: bool) -> None:
    """Make the run say itself whether it is struck."""
    properties = run.find("{*}rPr")
    if properties is None and is_struck:
        properties = _made("rPr")
        run.insert(0, properties)
    if properties is not None:
        for strike in properties.findall("{*}strike"):
            properties.remove(strike)
        if is_struck:
            SubElement(properties, f"{{{W}}}strike")


def _write_skipped_columns(root: _Element) -> None:
    """Write an empty cell over the columns that a row leaves out before its first cell."""
    for row in root.iter("{*}tr"):
        number = (value_at(row, "{*}trPr/{*}gridBefore") or "")[:9]
        if number.isdecimal() and int(number):
            cell = _made("tc")
            SubElement(SubElement(cell, f"{{{W}}}tcPr"), f"{{{W}}}gridSpan").set(f"{{{W}}}val", str(int(number)))
            row.find("{*}trPr").addnext(cell)


def _write_symbols(run: _Element) -> None:
    """Write characters of a font of symbols as the symbols that they show."""
    font = value_at(run, "{*}rPr/{*}rFonts", "ascii")
    if font in _SYMBOL_FONTS:
        for text in run.findall("{*}t"):
            signs = []
            for sign in text.text or "":
                # Of one byte, or of that byte in private use.
                is_symbol = not sign.isspace() and (sign <= "\xff" or "\uf020" <= sign <= "\uf0ff")
                signs.append(_made("sym" if is_symbol else "t"))
                if is_symbol:
                    signs[-1].set(f"{{{W}}}font", font)
                    signs[-1].set(f"{{{W}}}char", f"F0{ord(sign) & 0xFF:02X}")
                else:
                    signs[-1].text = sign
            place = run.index(text)
            run[place : place + 1] = signs


def _made(name: str) -> _Element:
    return Element(f"{{{W}}}{name}", nsmap={"w": W})


class _Switches:
    """Properties of runs: those of the run itself, or else of its styles, of which a second one switches back."""

    def __init__(self, styles: _Element | None, *names: str) -> None:
        self._styles = styles_of(styles)
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
        on ^= self._of_style(value_at(properties, "{*}rStyle") or "")
        direct = {name: is_on(properties.find(f"{{*}}{name}")) for name in self._names}
        return frozenset(name for name, value in direct.items() if (name in on if value is None else value))

    def _of_style(self, key: str) -> frozenset[str]:
        if key not in self._on:
            chain = with_bases(self._styles, key)
            values = {name: [is_on(style.find(f"{{*}}rPr/{{*}}{name}")) for style in chain] for name in self._names}
            self._on[key] = frozenset(n for n in values if next((on for on in values[n] if on is not None), False))
        return self._on[key]


def styles_of(styles: _Element | None) -> dict[str, _Element]:
    """The styles by their ids."""
    entries = () if styles is None else styles.iterchildren("{*}style")
    return {value_of(style, "styleId"): style for style in entries}


def with_bases(styles: Mapping[str, _Element], key: str) -> list[_Element]:
    """A style and those that it is based on."""
    chain: list[_Element] = []
    while key in styles and len(chain) < _MAX_LINKS:
        chain.append(styles[key])
        key = value_at(chain[-1], "{*}basedOn") or ""
    return chain


def is_on(element: _Element | None) -> bool | None:
    """The value of a property that is on or off; None where it is missing."""
    return None if element is None else value_of(element) not in _OFF


def value_of(element: _Element, name: str = "val") -> str:
    """An attribute in the namespace of its element."""
    return str(element.get(f"{{{QName(element).namespace}}}{name}", ""))


def value_at(element: _Element | None, path: str, name: str = "val") -> str | None:
    """An attribute of the element at a path, in its namespace; None where either is missing."""
    child = None if element is None else element.find(path)
    return None if child is None else child.get(f"{{{QName(child).namespace}}}{name}")
