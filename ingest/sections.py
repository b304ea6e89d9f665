"""Which stretches of a document's text belong together under one title, before anything is cut to size."""

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.cuts import Words
from ingest.parse import Parsed
from ingest.parse.parsed import heading_paths

_JOINT = ": "


@dataclass(frozen=True, slots=True)
class Part:
    """Characters [start, end) under `title`, which holds their own heading: it begins at `heading_start`.

    `short_title` is the last step of the title alone.
    """

    title: str
    short_title: str
    heading_start: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A heading with what follows it up to the next heading. `path` are the titles below the document's."""

    path: tuple[str, ...]
    heading_start: int
    start: int
    end: int


def parts_of(parsed: Parsed, words: Words, small: int, full: int) -> list[Part]:
    """The document's sections; neighbours of under `small` tokens share a part of up to `full`,
    neighbours of one title always."""
    stretches = _without_bare_headings(list(_stretches(parsed)), words)
    groups = _group_small(stretches, words, small, full)
    return [_part(parsed.title, group) for group in groups]


def _stretches(parsed: Parsed) -> Iterator[_Stretch]:
    sections = parsed.sections
    *ends, last_end = *(section.start for section in sections), len(parsed.text)
    yield _Stretch((), 0, 0, ends[0] if ends else last_end)
    for section, path, end in zip(sections, heading_paths(sections), [*ends[1:], last_end], strict=False):
        below_title = path[1:] if path[0] == parsed.title else path
        yield _Stretch(below_title, section.start, section.body, end)


def _without_bare_headings(stretches: list[_Stretch], words: Words) -> list[_Stretch]:
    """A heading with nothing under it is dropped where the next one's path holds it, and is text otherwise."""
    kept: list[_Stretch] = []
    for stretch, following in zip(stretches, [*stretches[1:], None], strict=True):
        if words.count(stretch.start, stretch.end):
            kept.append(stretch)
        elif not _leads_to(stretch, following) and words.count(stretch.heading_start, stretch.end):
            kept.append(_Stretch(stretch.path[:-1], stretch.heading_start, stretch.heading_start, stretch.end))
    return kept


def _leads_to(stretch: _Stretch, following: _Stretch | None) -> bool:
    depth = len(stretch.path)
    return following is not None and len(following.path) > depth and following.path[:depth] == stretch.path


def _group_small(stretches: list[_Stretch], words: Words, small: int, full: int) -> list[list[_Stretch]]:
    groups: list[list[_Stretch]] = []
    room = 0
    for stretch in stretches:
        size = words.count(stretch.heading_start, stretch.end)
        same_title = bool(groups) and groups[-1][-1].path == stretch.path
        if same_title or (size <= room and size < small):
            groups[-1].append(stretch)
            room -= size
        else:
            groups.append([stretch])
            room = full - size if size < small else 0
    return groups


def _part(document_title: str, group: list[_Stretch]) -> Part:
    """One stretch under its own path, several under what their paths share, with their headings in the text."""
    first, last = group[0], group[-1]
    path = first.path if len(group) == 1 else _shared([stretch.path for stretch in group])
    start = first.start if path == first.path else first.heading_start
    steps = (document_title, *path)
    return Part(_JOINT.join(steps), steps[-1], first.heading_start, start, last.end)


def _shared(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    shared = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        shared.append(steps[0])
    return tuple(shared)
