"""The service over HTTP, in this process."""

from collections.abc import Iterator

import pytest

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.parts import Parts
from ragkv.redis_door import EmbeddedRedis
from tests.over_http import Client, client_of, upload


@pytest.fixture
def client(parts: Parts, redis_server: EmbeddedRedis) -> Iterator[Client]:
    """A client that needs no key: there is none."""
    with client_of(parts) as client:
        yield client


@pytest.fixture
def answerable(client: Client, ingest: IngestParts) -> str:
    """A document that is ready."""
    document_id = str(upload(client).json()["id"])
    ingest_document(document_id, ingest)
    return document_id
