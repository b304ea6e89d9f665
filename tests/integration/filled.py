"""Databases of any size, filled by the database itself."""

from zlib import crc32

from sqlalchemy import Connection, select, text

from ragkv.service.base.database import Database
from ragkv.service.base.tables import DocumentRow, KVEntryRow
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.indexed import DatabaseSource, MadeWith
from ragkv.service.parts import Parts

INDEX_FINGERPRINT = "fingerprint"
_NUMBERS = {
    "postgresql": "SELECT i FROM generate_series(0, :last) AS numbers(i)",
    "sqlite": "WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < :last) "
    "SELECT i FROM numbers",
}
_HEX = {
    "postgresql": "lpad(to_hex(CAST(:first AS BIGINT) + i), 64, '0')",
    "sqlite": "printf('%064x', CAST(:first AS INTEGER) + i)",
}
_BYTES = {"postgresql": "decode(repeat('00', CAST(:width AS INTEGER)), 'hex')", "sqlite": "zeroblob(:width)"}


def source_of(database: Database, index_fingerprint: str) -> DatabaseSource:
    """A source whose encoder has the same name as the rest, and whose tokenizer knows one word."""
    return DatabaseSource(database, MadeWith(index_fingerprint, index_fingerprint), lambda texts: [[7] for _ in texts])


def add_documents(
    database: Database, ref: CollectionRef, documents: int, chunks: int, prefix: str, width: int = 16
) -> None:
    """Documents `prefix` + number with so many chunks each, of vectors of so many bytes; each chunk has a KV key."""
    with database.writing() as session:
        connection = session.connection()
        kind = connection.dialect.name
        names = {
            "tenant": ref.tenant_id,
            "collection": ref.collection_id,
            "prefix": prefix,
            "fingerprint": INDEX_FINGERPRINT,
        }
        columns = (
            "id, tenant_id, collection_id, sha256, name, title, media_type, num_bytes, metadata, status, stage, "
            "progress_done, progress_total, num_chunks, num_tokens, attempts, version, recipe, kv_recipe, created_at, updated_at"
        )
        moment, first = "CURRENT_TIMESTAMP", crc32(prefix.encode()) << 24
        _fill(
            connection,
            f"INSERT INTO documents ({columns}) SELECT CAST(:prefix AS TEXT) || i, :tenant, :collection, {_HEX[kind]}, 'n', '', '', 9, "
            f"'{{}}', 'ready', '', 0, 0, :chunks, 9, 0, 1, :fingerprint, '', {moment}, {moment} FROM ({_NUMBERS[kind]}) AS n",
            names | {"last": documents - 1, "chunks": chunks, "first": first},
        )
        chunk_columns = (
            'id, tenant_id, document_id, ordinal, title, text, start, "end", token_ids, kv_key, dense, sparse_indices, '
            "sparse_values"
        )
        _fill(
            connection,
            f"INSERT INTO chunks ({chunk_columns}) SELECT CAST(:prefix AS TEXT) || 'c' || i, :tenant, CAST(:prefix AS TEXT) || (i / CAST(:chunks AS INTEGER)), i - (i / CAST(:chunks AS INTEGER)) * CAST(:chunks AS INTEGER), "
            f"'Title ' || i, 'text', 0, 4, {_BYTES[kind]}, {_HEX[kind]}, {_BYTES[kind]}, {_BYTES[kind]}, {_BYTES[kind]} "
            f"FROM ({_NUMBERS[kind]}) AS n",
            {k: v for k, v in names.items() if k in ("tenant", "prefix")}
            | {"last": documents * chunks - 1, "chunks": chunks, "width": width, "first": first},
        )
        connection.execute(text("UPDATE collections SET generation = generation + 1"))
        if kind == "postgresql":  # does so by itself, a little later; SQLite never does
            connection.execute(text("ANALYZE"))


def add_files(parts: Parts) -> None:
    """The file of every document, and an entry and a file for every chunk's KV. Files are empty."""
    with parts.database.writing() as session:
        session.execute(
            text(
                "INSERT INTO kv_entries (key, tenant_id, num_tokens, num_bytes, tier, created_at, last_used_at) SELECT DISTINCT "
                "kv_key, tenant_id, 9, 9, 'disk', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP FROM chunks WHERE kv_key IS NOT NULL"
            )
        )
        paths = [parts.files.path(*row) for row in session.execute(select(DocumentRow.tenant_id, DocumentRow.sha256))]
        paths += [parts.kv_store.path(key) for key in session.scalars(select(KVEntryRow.key))]
    for folder in {path.parent for path in paths}:
        folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.touch()


def _fill(connection: Connection, statement: str, values: dict[str, object]) -> None:
    connection.execute(text(statement), values)
