"""Points on the Qdrant server held against the chunks in the database."""

from collections.abc import Iterable, Sequence

from ragkv.parts import Parts
from ragkv.retrieve.index import Held
from ragkv.upkeep.check import Check, Grace
from ragkv.upkeep.leftovers import stray_points
from ragkv.upkeep.points import missing_points, write_points

_SEPARATOR = "/"


def strays(grace: Grace, parts: Parts) -> Iterable[str]:
    return stray_points(parts)


def incomplete(grace: Grace, parts: Parts) -> Iterable[str]:
    return [_SEPARATOR.join(place) for place in missing_points(parts)]


def _forget(document_ids: Sequence[str], grace: Grace, parts: Parts) -> None:
    if parts.server_index is not None:
        parts.server_index.delete_documents(document_ids)


def _write(names: Sequence[str], grace: Grace, parts: Parts) -> None:
    write_points([Held(*name.split(_SEPARATOR)) for name in names], parts)


POINT_CHECKS = (
    Check("stray_points", "vectors in Qdrant of documents that are gone", "removed", strays, _forget),
    Check("missing_points", "documents with other vectors in Qdrant than chunks", "written anew", incomplete, _write),
)
