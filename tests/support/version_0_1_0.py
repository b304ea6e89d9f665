"""A service of version 0.1.0 as a year of use leaves it: rows for its tables, and the files they name."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import Connection, insert

from ragkv.retrieve.encoder import embed_chunks
from ragkv.service.backup.dump import reflected
from ragkv.service.parts import Parts

REVISION = "0007"
TENANT, OTHER, COLLECTION, ATTIC = "1" * 32, "2" * 32, "3" * 32, "4" * 32
READY, WAITING, FAILED, EVICTED = "a" * 32, "b" * 32, "c" * 32, "d" * 32
KEY_ID, KEY_SECRET = "f" * 16, "e" * 64
KEY = f"rk_{KEY_ID}_{KEY_SECRET}"
BODIES = {
    READY: b"# Ada Lovelace\n\nAda Lovelace wrote the first program, for the analytical engine of Charles Babbage.\n",
    WAITING: b"# Alan Turing\n\nAlan Turing wrote of machines that compute, and of whether they think.\n",
    FAILED: b"%PDF-1.4 cut short",
    EVICTED: "# Emmy Nœther\n\nEmmy Nœther showed what symmetries keep — 1918.\n".encode(),
}
THEN = datetime(2026, 3, 1, 12, 30, 59, 123456, tzinfo=UTC)
KV_KEY = "9" * 64

Rows = dict[str, list[dict[str, Any]]]


def fill(connection: Connection, parts: Parts) -> None:
    """Insert the rows, and put the files where they belong."""
    rows = rows_of(parts)
    for table in reflected(connection):
        if rows.get(table.name):
            connection.execute(insert(table), rows[table.name])
    for body in BODIES.values():
        path = parts.files.path(TENANT, sha256(body))
        path.parent.mkdir(parents=True)
        path.write_bytes(body)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def rows_of(parts: Parts) -> Rows:
    documents = [
        _document(parts, READY, "ada.md", status="ready", version=2, metadata={"year": 1843, "tags": ["a", "ö"]}),
        _document(parts, WAITING, "alan.md", status="accepted", num_chunks=0, recipe="", kv_recipe=""),
        _document(parts, FAILED, "cut.pdf", status="failed", error="cut.pdf: no PDF", num_chunks=0, attempts=1),
        _document(parts, EVICTED, "nœther.md", status="searchable", kv_evicted=True, kv_pinned=True),
    ]
    return {
        "tenants": [_named(TENANT, "default", secret=bytes(range(32))), _named(OTHER, "guests", secret=bytes(32))],
        "collections": [_collection(COLLECTION, TENANT, "default"), _collection(ATTIC, OTHER, "default")],
        "api_keys": [_key(KEY_ID, TENANT, None), _key("d" * 16, OTHER, THEN)],
        "documents": documents,
        "document_labels": [{"document_id": READY, "key": "year", "value": "1843"}],
        "chunks": [_chunk(parts, document_id) for document_id in (READY, EVICTED)],
        "kv_entries": [_kv_entry()],
        "jobs": [_job(index, document["id"]) for index, document in enumerate(documents)],
        "questions": [_question("Who wrote it?", "SmolLM2"), _question("Wer war's — 1918?", None)],
        "files": [_named("5" * 32, "ada.md", tenant_id=TENANT, sha256=sha256(BODIES[READY]), num_bytes=99, purpose="assistants")],
        "attachments": [{"document_id": READY, "file_id": "5" * 32, "created_at": THEN}],
        "file_batches": [{"id": "6" * 32, "collection_id": COLLECTION, "cancelled": False, "created_at": THEN}],
        "file_batch_members": [{"batch_id": "6" * 32, "file_id": "5" * 32}],
    }  # fmt: skip


def _named(row_id: str, name: str, **columns: object) -> dict[str, Any]:
    return {"id": row_id, "name": name, "created_at": THEN, **columns}


def _collection(row_id: str, tenant_id: str, name: str) -> dict[str, Any]:
    rule = {"cache_answers": True, "cache_threshold": 0.9, "cache_ttl_s": 60, "generation": 7, "kv_pinned": False}
    return _named(row_id, name, tenant_id=tenant_id, **rule)


def _key(key_id: str, tenant_id: str, revoked_at: datetime | None) -> dict[str, Any]:
    digest = hashlib.sha256(KEY_SECRET.encode()).digest()
    moments = {"expires_at": None, "last_used_at": THEN, "revoked_at": revoked_at}
    return _named(key_id, "laptop", tenant_id=tenant_id, digest=digest, scopes="read write admin", **moments)


def _document(parts: Parts, document_id: str, name: str, **columns: object) -> dict[str, Any]:
    settings, body = parts.settings, BODIES[document_id]
    defaults: dict[str, Any] = {
        "tenant_id": TENANT, "collection_id": COLLECTION, "sha256": sha256(body), "title": "", "media_type": "text/markdown",
        "num_bytes": len(body), "metadata": {}, "error": None, "stage": "", "progress_done": 0, "progress_total": 0,
        "num_chunks": 1, "num_tokens": 25, "attempts": 1, "lease_owner": None, "lease_until": None, "version": 1,
        "recipe": _digest(settings.model, settings.encoder, settings.chunk_tokens),
        "kv_recipe": _digest(settings.model, settings.dtype, settings.instructions),
        "kv_pinned": False, "kv_evicted": False, "updated_at": THEN + timedelta(seconds=5),
    }  # fmt: skip
    return _named(document_id, name) | defaults | columns


def _digest(*values: object) -> str:
    return sha256(msgspec.json.encode([str(value) for value in values]))


def _chunk(parts: Parts, document_id: str) -> dict[str, Any]:
    title, _, text = BODIES[document_id].decode().strip().removeprefix("# ").partition("\n\n")
    (vectors,) = embed_chunks(parts.encoder, [(title, text)], lambda done, total: None)
    return {
        "id": f"{document_id}:0", "tenant_id": TENANT, "document_id": document_id, "ordinal": 0, "title": title, "text": text,
        "start": 0, "end": len(text), "page": None, "kv_key": KV_KEY if document_id == READY else None,
        "token_ids": np.asarray(parts.tokenizer.encode(text), "<u4").tobytes(),
        "dense": vectors.dense.astype("<f4").tobytes(),
        "sparse_indices": vectors.indices.astype("<u4").tobytes(),
        "sparse_values": vectors.values.astype("<f4").tobytes(),
    }  # fmt: skip


def _kv_entry() -> dict[str, Any]:
    size = {"num_tokens": 25, "num_bytes": 2**40, "tier": "disk"}
    return {"key": KV_KEY, "tenant_id": TENANT, "created_at": THEN, "last_used_at": THEN, **size}


def _job(index: int, document_id: str) -> dict[str, Any]:
    status = ("done", "queued", "failed", "done")[index]
    moments = {"created_at": THEN, "updated_at": THEN}
    return {
        "id": f"{index}" * 32, "tenant_id": TENANT, "document_id": document_id, "kind": "ingest", "status": status,
        "attempts": 1, "error": None, **moments,
    }  # fmt: skip


def _question(text: str, model: str | None) -> dict[str, Any]:
    times = dict.fromkeys(
        ("retrieve_ms", "plan_ms", "ttft_ms", "engine_ttft_ms", "kv_load_ms", "recompute_ms", "total_ms"), 1.5
    )
    tokens = ("prompt", "cached", "stitched", "recomputed", "computed", "completion", "disk")
    return {
        "id": sha256(text.encode())[:32], "tenant_id": TENANT, "collection_id": COLLECTION, "text": text, "mode": "stitched",
        "policy": "question", "recompute_ratio": 0.1, "finish_reason": "stop", "failed_chunks": 0, "model": model,
        "created_at": THEN, **times, **{f"{name}_tokens": 12 for name in tokens},
    }  # fmt: skip
