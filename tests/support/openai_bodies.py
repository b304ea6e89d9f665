"""Request bodies for the endpoints of OpenAI's clients, by a tenant's ids."""

from typing import Any

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.documents.requeue import stuck_ids
from tests.support.over_http import Client

SERVED = "SmolLM2-135M-Instruct"
SECRET = b"# Reef\n\nThe wreck with the pearls lies east of the reef.\n"
QUESTION = "Where does the wreck lie?"


def openai_ids(client: Client, headers: dict[str, str], ingest: IngestParts) -> dict[str, str]:
    """A vector store with a batch of one file, ready, and a model that answers from it."""
    form = {"files": {"file": ("reef.md", SECRET)}, "data": {"purpose": "assistants"}}
    file_id = client.post("/v1/files", headers=headers, **form).json()["id"]
    store_id = client.post("/v1/vector_stores", json={"name": "charts"}, headers=headers).json()["id"]
    way = f"/v1/vector_stores/{store_id}/file_batches"
    batch_id = client.post(way, json={"file_ids": [file_id]}, headers=headers).json()["id"]
    for document_id in stuck_ids(ingest.parts.database):
        ingest_document(document_id, ingest)
    return {"file_id": file_id, "vector_store_id": store_id, "batch_id": batch_id, "model": f"{SERVED}@{store_id}"}


def openai_bodies(ids: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Requests that would succeed for the owner of the ids; with each id once, and without where it may be left out."""
    store, file = ids["vector_store_id"], ids["file_id"]
    of_store = "/v1/vector_stores/{vector_store_id}"
    chat: dict[str, Any] = {"model": SERVED, "messages": [{"role": "user", "content": QUESTION}]}
    response: dict[str, Any] = {"model": SERVED, "input": QUESTION}
    tool = {"type": "file_search", "vector_store_ids": [store]}
    return {
        "POST /v1/chat/completions": [
            {"json": chat | more} for more in ({}, {"vector_store_ids": [store]}, {"model": ids["model"]})
        ],
        "POST /v1/responses": [
            {"json": response | more} for more in ({}, {"tools": [tool]}, {"model": ids["model"], "stream": True})
        ],
        "GET /v1/files": [{}, {"params": {"after": file}}],
        "POST /v1/embeddings": [{"json": {"model": "all-MiniLM-L6-v2", "input": QUESTION}}],
        "POST /v1/files": [{"files": {"file": ("a.md", b"mine alone")}, "data": {"purpose": "assistants"}}],
        "GET /v1/vector_stores": [{}, {"params": {"after": store}}, {"params": {"before": store}}],
        "POST /v1/vector_stores": [{"json": {}}, {"json": {"file_ids": [file]}}],
        f"POST {of_store}": [{"json": {"name": "new charts"}}],
        f"POST {of_store}/search": [{"json": {"query": QUESTION}}],
        f"POST {of_store}/files": [{"json": {"file_id": file}}],
        f"GET {of_store}/files": [{}, {"params": {"after": file}}],
        f"POST {of_store}/files/{{file_id}}": [{"json": {"attributes": {"a": 1}}}],
        f"POST {of_store}/file_batches": [{"json": {"file_ids": [file]}}, {"json": {"files": [{"file_id": file}]}}],
    }
