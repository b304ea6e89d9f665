"""Marks around text that is struck out, as Markdown writes them: without, what no longer holds would read as valid."""

from collections.abc import Collection

from lxml.etree import _Element, iterwalk

from ingest.parse.raised import Names

_MARK = "~~"
TAGS = ("del", "s", "strike")


def struck(words: str) -> str:
    """The words between marks, and the spaces around them outside."""
    return _closed(_opened(words)) if words.strip() else words


def mark_struck(tree: _Element, elements: Collection[_Element], blocks: Names) -> None:
    """Put marks around the words in these elements. `blocks`: the elements that end a line, and a mark with it."""
    places: list[tuple[_Element, str]] = []
    depth = 0

    def close() -> None:
        for (element, name), marked in ((places[0], _opened), (places[-1], _closed)) if places else ():
            setattr(element, name, marked(getattr(element, name)))
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


def _opened(words: str) -> str:
    start = len(words) - len(words.lstrip())
    return f"{words[:start]}{_MARK}{words[start:]}"


def _closed(words: str) -> str:
    end = len(words.rstrip())
    return f"{words[:end]}{_MARK}{words[end:]}"
