"""Consistency checks across rows, files, KV and points, and repairs."""

from collections.abc import Iterator, Sequence

import msgspec

from ragkv.retrieve.index import Held
from ragkv.service.checks.check import ConsistencyCheck, Grace
from ragkv.service.checks.cleaning import delete_points
from ragkv.service.checks.file_checks import FILE_CHECKS
from ragkv.service.checks.kv_checks import DAMAGED_KV, KV_CHECKS
from ragkv.service.checks.leftovers import stray_points
from ragkv.service.checks.points import missing_points, write_points
from ragkv.service.checks.row_checks import ROW_CHECKS
from ragkv.service.parts import Parts
from ragkv.settings import Settings

_SEPARATOR = "/"
POINT_CHECKS = (
    ConsistencyCheck(
        "stray_points", "vectors in Qdrant of documents that are gone", "removed",
        lambda grace, parts: stray_points(parts.database, parts.server_index),
        lambda document_ids, grace, parts: delete_points(document_ids, parts.server_index),
    ),
    ConsistencyCheck(
        "missing_points", "documents whose vectors in Qdrant do not match their chunks", "written again",
        lambda grace, parts: [_SEPARATOR.join(held) for held in missing_points(parts.database, parts.server_index)],
        lambda names, grace, parts: write_points([Held(*name.split(_SEPARATOR)) for name in names], parts.server_index, parts.source),
    ),
)  # fmt: skip
"""Points on the Qdrant server against the chunks in the database."""


class Finding(msgspec.Struct, frozen=True):
    """The names that one check found, and the remedy that was or would be applied."""

    check: str
    about: str
    remedy: str
    found: list[str]
    mended: bool


def checks(settings: Settings, *, quick: bool) -> Sequence[ConsistencyCheck]:
    """Files first, then what is made of them: mending one may leave work for the next. `quick` reads no KV."""
    damaged = () if quick else (DAMAGED_KV,)
    points = POINT_CHECKS if settings.qdrant_url is not None else ()
    return (*FILE_CHECKS, *ROW_CHECKS, *damaged, *KV_CHECKS, *points)


def examine(grace: Grace, parts: Parts, *, quick: bool = False) -> Iterator[Finding]:
    """Look, and change nothing. Raises Unavailable when a part is away."""
    for check in checks(parts.settings, quick=quick):
        yield _finding(check, list(check.find(grace, parts)), mended=False)


def repair(grace: Grace, parts: Parts, *, quick: bool = False) -> Iterator[Finding]:
    """Look, and mend what is found."""
    for check in checks(parts.settings, quick=quick):
        names = list(check.find(grace, parts))
        if names:
            check.mend(names, grace, parts)
        yield _finding(check, names, mended=bool(names))


def _finding(check: ConsistencyCheck, names: list[str], *, mended: bool) -> Finding:
    return Finding(check.name, check.about, check.remedy, names, mended)
