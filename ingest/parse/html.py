"""Parser for HTML: the visible text of a page. No script is run, and no resource is fetched."""

import re
from collections.abc import Iterator
from itertools import chain, islice

from inscriptis.css_profiles import STRICT_CSS_PROFILE
from inscriptis.html_engine import Inscriptis
from inscriptis.html_properties import Display
from inscriptis.model.config import ParserConfig
from inscriptis.model.html_element import HtmlElement
from inscriptis.model.tag import CustomHtmlTagHandlerMapping
from lxml import etree
from lxml.etree import _Element
from lxml.html import HTMLParser, document_fromstring

from ingest.parse.encoding import decode
from ingest.parse.formulas import write_formulas
from ingest.parse.marks import STRUCK_TAGS, mark_struck, sign_raised_numbers
from ingest.parse.numerals import number_items, start_item
from ingest.parse.parsed import Omissions, Parsed, Section, leading_title, one_line
from ingest.parse.pictures import write_descriptions
from ingest.parse.sniff import Format
from ingest.parse.styles import Sheet, Style, Styles
from ingest.parse.tables import flatten_tables
from ragkv.errors import Rejected
from ragkv.text import scrub, tidy

_HEADING_START = 0xFDD0  # + level
_HEADING_END = "\ufddf"
_MARKED = re.compile("([\ufdd1-\ufdd6])([^\ufddf]*)\ufddf")
_ANY_MARK = re.compile("[\ufdd0-\ufddf]")
"""Marks around a heading's text, which find it in what is rendered, where offsets into HTML mean nothing: Unicode
noncharacters, which `scrub` keeps out of every document."""
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_TICKED = ("checkbox", "radio")
_WITHOUT_WORDS = ("hidden", "submit", "button", "reset", "image", "password", "file", "color", "range")
_ROLES = "//*[@aria-checked and (@role='checkbox' or @role='radio' or @role='switch')]"
_TASKS = "//li[@data-inline-task-id] | //div[@class='checkbox checkbox-on' or @class='checkbox checkbox-off']"
_DONE = frozenset(("checked", "checkbox-on"))
"""Tasks as Confluence and Notion export them."""
_MAX_LEVELS = 8  # between a control and the label that it stands in
_MAX_CHARS = 1_000  # of a label, before its first word
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=[\s\"']*([\w-]{2,40})", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"\s*<\?xml[^>]{0,200}encoding\s*=\s*[\"']([\w-]{2,40})")
_FURNITURE = (
    "//*[(@aria-hidden='true' and not(@role='tabpanel')) or @role='navigation'] | //li[count(*)=1 and a[@hreflang and @lang]]"
    " | //*[(self::rt or self::rp) and ancestor::ruby]"  # readings, which would stand within words
    " | //*[contains(@class, 'mw-editsection')]"  # behind titles of wikis
    " | //a[starts-with(@href, '#') and not(*) and not(translate(., '¶#§^↑↩∞\uf0c1\ufe0e🔗 ', ''))]"  # behind titles and notes
)
_MAIN = "boolean(//main | //*[@role='main'])"
_AROUND_MAIN = (
    "//*[self::header or self::footer or self::aside or @role='banner' or @role='contentinfo' or @role='complementary']"
    "[not(ancestor-or-self::*[self::main or @role='main' or self::article or self::section])]"
    "[not(ancestor::header or ancestor::footer or ancestor::aside)][not(.//h1 or .//main or .//*[@role='main'])]"
)
"""What stands on all pages of a site, around what one of them is about."""
_LINE_NUMBERS = re.compile(r"(?:^|[\s_-])(?:line-?(?:no|numbers?)|linenos|linenodiv|lnt?|gutter)(?=$|[\s_-])")
"""In the classes of elements beside lines of code, as Pygments, Rouge, Chroma, Doxygen and SyntaxHighlighter write
them."""
_CODE = ("script", "style", "noscript", "template")
_NOT_CONTENT = (
    "script", "iframe", "object", "embed", "svg", "canvas", "audio", "video", "nav", "button", "select", "textarea",
    "datalist", "annotation", "annotation-xml",
)  # fmt: skip
_BLOCKS = (
    "html", "body", "div", "section", "article", "main", "header", "footer", "aside", "address", "figcaption", "form",
    "fieldset", "legend", "details", "summary", "hgroup", "center", "dl", "dt", "dd", "li", "tr", "td", "th", "caption",
    "thead", "tbody", "tfoot",
)  # fmt: skip
_SPACED_BLOCKS = (*_HEADINGS, "p", "ul", "ol", "pre", "blockquote", "figure", "table", "hr")
_STRUCTURE = frozenset((*_BLOCKS, *_SPACED_BLOCKS, "br", "head", "title"))
_OF_TABLES = ("table", "thead", "tbody", "tfoot", "tr")
_PAGE, _FINDABLE = ("html", "body"), "until-found"
_TITLES = (*_HEADINGS, "dt", "summary")
_MAX_TITLE_ELEMENTS, _MAX_TWIN_ELEMENTS = 50, 50
_MAX_DEPTH = 150  # the renderer recurses for each level


def read_html(body: bytes, fallback_title: str, omissions: Omissions, shared: Sheet | None = None) -> Parsed:
    """A page as text. `shared`: a style sheet beside those in it. Raises Rejected when it is nested too deeply to be
    read whole."""
    return parse_source(decode(body, declared_encoding(body)), fallback_title, Format.HTML, omissions, shared)


def declared_encoding(body: bytes) -> str | None:
    """The encoding that a page declares: in a `meta` element, or else in its XML declaration."""
    start = body[:4096]
    declared = _CHARSET.search(start) or _XML_ENCODING.match(start)
    return declared[1].decode("ascii", "replace") if declared else None


def parse_source(
    source: str, fallback_title: str, format_: Format, omissions: Omissions, shared: Sheet | None = None
) -> Parsed:
    """HTML source as text: headings become sections, table rows lines, scripts and navigation nothing."""
    parser = _parser()
    try:
        tree = document_fromstring(scrub(source).encode("utf-8"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return Parsed(fallback_title, "", pages=(), media_type=format_.value)
    errors = {error.type for error in parser.error_log}
    if etree.ErrorTypes.ERR_NO_MEMORY in errors:
        raise MemoryError
    if etree.ErrorTypes.ERR_RESOURCE_LIMIT in errors:
        raise Rejected("its elements are nested too deeply: save the page as plain text or PDF")
    head_title = one_line(" ".join(tree.xpath("//title[not(ancestor::svg)]/text()")[:1]))
    marked_title = one_line("".join(t for h in tree.xpath("//h1[@class='title']")[:1] for t in h.itertext()))
    simple = _simplify(tree, omissions, shared)
    _prepare_for_renderer(simple)
    text, sections = _unmark(tidy(Inscriptis(simple, _RENDERING).get_text()))
    top_heading = next((s.title for s in sections if s.level == 1), None)
    if top_heading and top_heading in head_title:
        head_title = top_heading  # the page's own title without the site's name
    title = marked_title or head_title or leading_title(sections) or fallback_title
    return Parsed(title, text, pages=(), media_type=format_.value, sections=sections)


def _parser() -> HTMLParser:
    return HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True, huge_tree=True)


def _simplify(tree: _Element, omissions: Omissions, shared: Sheet | None) -> _Element:
    """Keep only elements that carry text or structure."""
    styles = Styles(tree, shared)
    etree.strip_elements(tree, *_CODE, with_tail=False)
    _write_forms(tree)
    write_descriptions(tree)
    spoken: set[_Element] = set()
    around = tree.xpath(_AROUND_MAIN) if tree.xpath(_MAIN) else ()
    for element in [*tree.xpath(_FURNITURE), *_line_numbers(tree), *around]:
        if element.tag not in _PAGE:
            spoken.update(_spoken_twins(element, styles))
            element.tag = _NOT_CONTENT[0]
    struck = _apply_styles(tree, styles, spoken, omissions)
    _keep_title_buttons(tree)
    etree.strip_elements(tree, *_NOT_CONTENT, with_tail=False)
    write_formulas(tree)
    sign_raised_numbers(tree, _STRUCTURE)
    if struck:
        mark_struck(tree, struck, _STRUCTURE)
    for element in tree.iter(etree.Element):
        is_around_cells = element.tag == "form" and element.getparent().tag in _OF_TABLES
        if element.tag not in _STRUCTURE or is_around_cells:
            element.tag = "span"
    etree.strip_tags(tree, "span")
    # Parsed again: reading the many pieces of text that stripping leaves side by side takes quadratic time.
    return document_fromstring(etree.tostring(tree, encoding="utf-8", method="html"), parser=_parser())


def _line_numbers(tree: _Element) -> Iterator[_Element]:
    """The elements that number lines of code, whose first words they would become part of: the innermost ones, as
    all that is in one is looked at."""
    innermost = None
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        if event == "start" and _LINE_NUMBERS.search(element.get("class", "")):
            innermost = element
        elif innermost is not None and element is innermost:
            innermost = None
            if "".join("".join(element.itertext()).split()).isdecimal():
                yield element


def _spoken_twins(element: _Element, styles: Styles) -> Iterator[_Element]:
    """The elements beside one that is for the eye alone that say the same where only screen readers find it: as text
    they are the better ones, since a price may have its point from a style alone, and a formula is often a picture."""
    style = styles.of(element)
    if element.get("aria-hidden") == "true" and not (style.is_hidden or style.is_invisible or style.is_sizeless):
        for other in (element.getprevious(), element.getnext()):
            if other is None or not styles.of(other).is_hidden:
                continue
            if other.find("math") is not None or _letters(other) == _letters(element) != "":
                yield other


def _letters(element: _Element) -> str:
    """The letters and digits in an element that has few others in it."""
    is_small = len(list(islice(element.iter(), _MAX_TWIN_ELEMENTS + 1))) <= _MAX_TWIN_ELEMENTS
    return "".join(filter(str.isalnum, "".join(element.itertext()))) if is_small else ""


def _apply_styles(tree: _Element, styles: Styles, spoken: set[_Element], omissions: Omissions) -> set[_Element]:
    """Take away what is hidden, but for what is `spoken`, and write what else styles say as elements and attributes.
    Returns the elements that are struck out."""
    struck: set[_Element] = set()
    outer = [(False, False)]  # for each level, whether its words are invisible, and without size
    walk = etree.iterwalk(tree, events=("start", "end"))
    for event, element in walk:
        if event == "end":
            outer.pop()
            if element.tail and any(outer[-1]):
                element.tail = omissions.hidden(element.tail)
            continue
        style = Style() if element.tag in _PAGE else styles.of(element)
        outer.append(style.inside(*outer[-1]))
        is_closed = element.tag == "dialog" and "open" not in element.attrib
        is_hidden = style.is_hidden or is_closed or element.get("hidden", _FINDABLE) != _FINDABLE
        is_panel = element.get("role") == "tabpanel"  # which a click on its tab shows
        if is_hidden and not is_panel and element not in spoken and omissions.leaves_out(" ".join(element.itertext())):
            element.tag = _NOT_CONTENT[0]  # removed with the others: one by one, each would copy the text around it
            walk.skip_subtree()
            continue
        if element.text and any(outer[-1]):
            element.text = omissions.hidden(element.text)
        if style.is_struck or element.tag in STRUCK_TAGS:
            struck.add(element)
        if style.numbering:
            element.set("type", style.numbering)
        if style.raised and element.tag not in _STRUCTURE and element.tag not in _NOT_CONTENT:
            element.tag = style.raised
    return struck


def _keep_title_buttons(tree: _Element) -> None:
    """Keep the words of buttons that are all the words of a title, as of one that opens the text below it."""
    for title in tree.iter(*_TITLES):
        elements = list(islice(title.iter(), _MAX_TITLE_ELEMENTS + 1))
        buttons = [element for element in elements if element.tag == "button"]
        if not buttons or len(elements) > _MAX_TITLE_ELEMENTS:
            continue
        inside = {element for button in buttons for element in button.iter()}
        tails = ((element.getparent(), element.tail) for element in elements[1:])
        places = chain(((element, element.text) for element in elements), tails)
        if not any(words and words.strip() for element, words in places if element not in inside):
            for button in buttons:
                button.tag = "span"


def _safe(text: str | None) -> str | None:
    """Scrub text again, as character references may restore unwanted characters, and escape `&` for the renderer."""
    return scrub(text).replace("&", "&amp;") if text else text


def _write_forms(tree: _Element) -> None:
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
    for element in tree.xpath(_TASKS):
        _tick(element, element, ticked, is_ticked=not _DONE.isdisjoint(element.get("class", "").split()))


def _tick(control: _Element, label: _Element | None, ticked: set[_Element], *, is_ticked: bool) -> None:
    """Write the tick before the words of the label, or else in the control's place."""
    has_words = label is not None and any(map(str.isalnum, islice(chain.from_iterable(label.itertext()), _MAX_CHARS)))
    if label is None or label in ticked or not has_words:
        label = control
        control.tag = "span"
    ticked.add(label)
    label.text = f" {'[x]' if is_ticked else '[ ]'} {label.text or ''}"


def _values(control: _Element) -> Iterator[str]:
    if control.tag == "select":
        yield from ("".join(option.itertext()) for option in control.iter("option") if "selected" in option.attrib)
    elif control.tag == "textarea":
        yield "".join(control.itertext())
    elif control.get("type", "").lower() not in _WITHOUT_WORDS:
        yield control.get("value", "")


def _prepare_for_renderer(tree: _Element) -> None:
    """Write what the renderer would leave out or fail on, and put marks around the text of every heading element."""
    level = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for element in level for child in element]
    for element in level:  # below the depth limit, the text is kept and the elements are dropped
        etree.strip_tags(element, "*")
        element.tag = "div"  # text in a table or row without cells would be lost
    number_items(tree)
    for element in tree.iter():
        element.text, element.tail = _safe(element.text), _safe(element.tail)
    flatten_tables(tree)
    for heading in tree.iter(*_HEADINGS):
        heading.text = chr(_HEADING_START + int(heading.tag[1])) + (heading.text or "")
        if len(heading):
            heading[-1].tail = (heading[-1].tail or "") + _HEADING_END
        else:
            heading.text += _HEADING_END


def _unmark(marked: str) -> tuple[str, tuple[Section, ...]]:
    """Remove the marks, and return the text with the headings that they enclosed."""
    pieces: list[str] = []
    sections: list[Section] = []
    position = length = 0
    last = marked.rfind(_HEADING_END) + 1  # without this limit, each start would search for an end to no avail
    for match in _MARKED.finditer(marked, 0, last):
        preceding, heading = (_ANY_MARK.sub("", part) for part in (marked[position : match.start()], match[2].strip()))
        start = length + len(preceding)
        position, length = match.end(), start + len(heading)
        pieces += preceding, heading
        if title := one_line(heading):
            sections.append(Section(start, length, title, ord(match[1]) - _HEADING_START))
    pieces.append(_ANY_MARK.sub("", marked[position:]))
    return "".join(pieces), tuple(sections)


_PROFILE = {
    **STRICT_CSS_PROFILE,
    **{tag: HtmlElement(display=Display.block) for tag in _BLOCKS},
    **{tag: HtmlElement(display=Display.block, margin_before=1, margin_after=1) for tag in _SPACED_BLOCKS},
    **{tag: STRICT_CSS_PROFILE[tag] for tag in ("pre", "ul", "ol")},
}
_RENDERING = ParserConfig(
    css=_PROFILE,
    custom_html_tag_handler_mapping=CustomHtmlTagHandlerMapping(
        start_tag_mapping={"li": start_item}, end_tag_mapping={}
    ),
)
