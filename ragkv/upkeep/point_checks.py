"""Checks of points on the Qdrant server against the chunks in the database."""

from ragkv.retrieve.index import Held
from ragkv.upkeep.check import Check
from ragkv.upkeep.cleaning import delete_points
from ragkv.upkeep.leftovers import stray_points
from ragkv.upkeep.points import missing_points, write_points

_SEPARATOR = "/"


POINT_CHECKS = (
    Check(
        "stray_points", "vectors in Qdrant of documents that are gone", "removed",
        lambda grace, parts: stray_points(parts),
        lambda document_ids, grace, parts: delete_points(document_ids, parts),
    ),
    Check(
        "missing_points", "documents whose vectors in Qdrant do not match their chunks", "written again",
        lambda grace, parts: [_SEPARATOR.join(held) for held in missing_points(parts)],
        lambda names, grace, parts: write_points([Held(*name.split(_SEPARATOR)) for name in names], parts),
    ),
)  # fmt: skip
