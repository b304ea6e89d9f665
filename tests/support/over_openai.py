"""A service for OpenAI's clients, for tests: over a real connection, around an engine that echoes."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from openai import OpenAI

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.models import public_name
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import ingest_over, lend_models
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import serving

MAX_UPLOAD_BYTES = 100_000


@dataclass
class OpenAIService:
    """`http` sends what no client of OpenAI's would."""

    parts: Parts
    engine: EchoEngine
    ingest: IngestParts
    http: httpx.Client
    key: str

    @property
    def model(self) -> str:
        return public_name(self.parts.settings)

    @property
    def base_url(self) -> str:
        return f"{self.http.base_url}/v1"

    def client(self, key: str | None = None) -> OpenAI:
        return OpenAI(base_url=self.base_url, api_key=key or self.key, max_retries=0)

    def key_of(self, tenant: str, *scopes: str) -> str:
        return issue_key_by_name(tenant, "tests", scopes, self.parts.database).key

    def read_all(self) -> None:
        """Every document that waits is read."""
        for document_id in stuck_ids(self.parts.database):
            ingest_document(document_id, self.ingest)


@contextmanager
def openai_service(folder: Path, loaded: IngestParts) -> Iterator[OpenAIService]:
    """A service with an empty data folder, and a key that may do everything."""
    settings = Settings(
        data_dir=folder / "data",
        model=loaded.parts.settings.model,
        chunk_tokens=64,
        max_upload_bytes=MAX_UPLOAD_BYTES,
        requests_per_minute=0,
        tenant_requests_per_minute=0,
        refusals_per_minute=0,
        data_sources_allowed=str(folder),
    )
    engine = EchoEngine(settings)
    redis = EmbeddedRedis(settings)
    with closing(Parts(settings, engine)) as parts:
        lend_models(parts, loaded)
        parts.prepare()
        redis.start()
        try:
            key = issue_key_by_name("default", "tests", ["admin"], parts.database).key
            with serving(parts) as http:
                yield OpenAIService(parts, engine, ingest_over(parts, loaded), http, key)
        finally:
            redis.stop()
