"""The service over HTTP, in this process, and the database beneath it."""

from collections.abc import Iterator

import msgspec
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import lend_models
from tests.support.over_http import Client, client_of, upload


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    """A database of each kind in turn, with the newest schema and nothing in it."""
    database = Database(migrated_url)
    yield database
    database.close()


@pytest.fixture
def parts_on_either(
    settings: Settings, migrated_url: str, redis_server: EmbeddedRedis, loaded: IngestParts
) -> Iterator[Parts]:
    """Parts over a database of each kind in turn."""
    parts = Parts(msgspec.structs.replace(settings, database_url=migrated_url))
    lend_models(parts, loaded)
    ensure_collection(parts.database)
    yield parts
    parts.close()


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
