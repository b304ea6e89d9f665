"""Points on a Qdrant server, made from the vectors that are also in the database."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ragkv.retrieve.index import Held
from ragkv.service.base.database import Database
from ragkv.service.checks.consistency_statements import documents_with_points, searchable_documents
from ragkv.service.documents.indexed import DatabaseSource

if TYPE_CHECKING:
    from ragkv.retrieve.qdrant import QdrantIndex


def missing_points(database: Database, server_index: "QdrantIndex | None") -> list[Held]:
    """Documents that searches should find and that have fewer points than chunks, or more. None without a server."""
    if server_index is None:
        return []
    with database.reading() as session:
        expected = {Held(*place): chunks for *place, chunks in session.execute(documents_with_points())}
    held = server_index.held()
    return [place for place, chunks in expected.items() if held.get(place, 0) != chunks]


def write_points(places: Iterable[Held], server_index: "QdrantIndex | None", source: DatabaseSource) -> int:
    """Write the points of these documents anew, none of those that are gone. Returns how many."""
    return sum(_write(place, server_index, source) for place in places)


def _write(place: Held, server_index: "QdrantIndex | None", source: DatabaseSource) -> int:
    """Once more if other chunks were stored meanwhile: their own points may have been written before these."""
    assert server_index is not None, "points lie on a server"
    tenant_id, collection_id, document_id = place
    while True:
        version = source.indexed_documents(tenant_id, collection_id).get(document_id)
        points = source.points([document_id])
        server_index.replace(tenant_id, collection_id, [document_id], points)
        if source.indexed_documents(tenant_id, collection_id).get(document_id) == version:
            return len(points)


def renew_points(database: Database, server_index: "QdrantIndex | None", source: DatabaseSource) -> int | None:
    """Write every point on the server anew, and remove strays. Returns how many were written; None without a server."""
    if server_index is None:
        return None
    held = server_index.held()  # first: a document that is indexed meanwhile is wanted
    with database.reading() as session:
        expected = {Held(*place) for *place, _ in session.execute(searchable_documents())}
    for place in held:
        if place not in expected:
            server_index.delete_document(place.tenant_id, place.document_id)
    return write_points(expected, server_index, source)
