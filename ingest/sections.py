"""Sections of a document's text that share a title, before they are cut to size."""

from dataclasses import dataclass, replace
from itertools import takewhile

from ingest.cuts import Words
from ingest.parse import Parsed
from ingest.parse.parsed import heading_paths

_JOINT = ": "


@dataclass(frozen=True, slots=True)
class Part:
    """Characters [start, end) under `title`, which holds their own headings: they begin at `heading_start`.

    `short_title` is the last step of the title alone.
    """

    title: str
    short_title: str
    heading_start: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading and its text up to the next heading. `path`: its headings, outermost first, without the document's
    title. `above`: those of them right above it without text, as their place in the path, counted from 1, and where
    they begin."""

    path: tuple[str, ...]
    heading_start: int
    start: int
    end: int
    above: tuple[tuple[int, int], ...] = ()

    def start_below(self, path: tuple[str, ...]) -> int:
        """The first character that a chunk titled with the headings of `path` has of this section."""
        return next((start for place, start in self.above if place > len(path)), self.heading_start)


def parts_of(parsed: Parsed, words: Words, small: int, full: int) -> list[Part]:
    """The document's parts; neighbouring sections of under `small` tokens share a part of up to `full`,
    neighbours of one title always."""
    *ends, last_end = *(section.start for section in parsed.sections), len(parsed.text)
    sections = [_Section((), 0, 0, ends[0] if ends else last_end)]
    for heading, path, end in zip(parsed.sections, heading_paths(parsed.sections), [*ends[1:], last_end], strict=False):
        below_title = path[1:] if path[0] == parsed.title else path
        start = heading.start if heading.is_cut else heading.body
        sections.append(_Section(below_title, heading.start, start, end))
    parts = []
    for group in _group_small(_without_bare_headings(sections, words), words, small, full):
        opening, closing = group[0], group[-1]
        # One section under its own path; several under the start that their paths share, with their headings in the
        # text.
        steps_of_all = zip(*(section.path for section in group), strict=False)
        path = tuple(steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, steps_of_all))
        start = opening.start if path == opening.path else opening.start_below(path)
        steps = (parsed.title, *path)
        heading_start = opening.above[0][1] if opening.above else opening.heading_start
        parts.append(Part(_JOINT.join(steps), steps[-1], heading_start, start, closing.end))
    return parts


def _without_bare_headings(sections: list[_Section], words: Words) -> list[_Section]:
    """Put headings without text that the next section's path contains above it; other such headings become text."""
    sections_with_text: list[_Section] = []
    above: tuple[tuple[int, int], ...] = ()
    for section, following in zip(sections, [*sections[1:], None], strict=True):
        if words.count(section.start, section.end):
            sections_with_text.append(replace(section, above=above))
        elif following is not None and following.path[: len(section.path)] == section.path != following.path:
            above = (*above, (len(section.path), section.heading_start))
            continue
        elif words.count(section.heading_start, section.end):
            sections_with_text.append(
                replace(section, path=section.path[:-1], start=section.heading_start, above=above)
            )
        above = ()
    return sections_with_text


def _group_small(sections: list[_Section], words: Words, small: int, full: int) -> list[list[_Section]]:
    groups: list[list[_Section]] = []
    room = 0
    for section in sections:
        size = words.count(section.heading_start, section.end)
        same_title = bool(groups) and groups[-1][-1].path == section.path
        if same_title or (size <= room and size < small):
            groups[-1].append(section)
            room -= size
        else:
            groups.append([section])
            room = full - size if size < small else 0
    return groups
