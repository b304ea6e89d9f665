"""Parser for JSON and JSON Lines: each value on a line with its path."""

import json
from collections.abc import Iterable, Iterator

from ingest.parse.composer import Composer
from ingest.parse.encoded import without_encoded
from ingest.parse.encoding import decode
from ingest.parse.markup import read_plain
from ingest.parse.parsed import Omissions, Parsed
from ingest.parse.sniff import Format
from ragkv.errors import Rejected

_MAX_DEPTH = 100
_MAX_PATH_CHARS = 200
_TOO_DEEP = "its values are nested too deeply: save it in a flatter form or as plain text"


def read_json(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Lines `path: value`; the elements of the outermost list are paragraphs, so are objects and lists directly in
    the outermost object.

    What is neither JSON nor JSON lines (JSON with comments, say) is read as plain text.
    """
    try:
        value = values_of(decode(body))
    except ValueError:
        return read_plain(body, fallback_title, omissions)
    composer = Composer()
    if isinstance(value, dict):
        scalars = {key: inner for key, inner in value.items() if not isinstance(inner, dict | list)}
        composer.block("\n".join(_lines(scalars, "", omissions)))
        for key, inner in value.items():
            if key not in scalars:
                composer.block("\n".join(_lines(inner, key, omissions)))
    else:
        for inner in value if isinstance(value, list) else [value]:
            composer.block("\n".join(_lines(inner, "", omissions)))
    return composer.parsed(fallback_title, Format.JSON)


def values_of(text: str) -> object:
    """The value of a JSON text, or a list of those of JSON lines; numbers are strings, as they are written.

    Raises ValueError for any other text, Rejected for one nested too deeply.
    """
    try:
        return _value(text)
    except ValueError:
        return [_value(line) for line in text.split("\n") if line.strip()]


def _value(text: str) -> object:
    try:
        return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except RecursionError:
        raise Rejected(_TOO_DEEP) from None


def _lines(value: object, path: str, omissions: Omissions, depth: int = _MAX_DEPTH) -> Iterator[str]:
    if not depth:
        raise Rejected(_TOO_DEEP)
    if len(path) > _MAX_PATH_CHARS:
        path = f"…{path[-_MAX_PATH_CHARS:]}"
    match value:
        case dict():
            for key, inner in value.items():
                yield from _lines(inner, f"{path}.{key}" if path else key, omissions, depth - 1)
        case list() if any(isinstance(inner, dict | list) for inner in value):
            for number, inner in enumerate(value):
                yield from _lines(inner, f"{path}[{number}]", omissions, depth - 1)
        case list():
            yield from _line(path, ", ".join(filter(None, (_words(inner, omissions) for inner in value))))
        case _:
            yield from _line(path, _words(value, omissions))


def _line(path: str, words: str) -> Iterable[str]:
    return [f"{path}: {words}" if path else words] if words else []


def _words(value: object, omissions: Omissions) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else without_encoded(str(value), omissions)
