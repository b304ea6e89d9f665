"""The service that `make load` attacks: everything real but the engine, over an empty data folder."""

import io
import signal
import sys
from pathlib import Path

import msgspec

from api.app import create_app
from api.http.draining import Draining
from api.http.server import Server, freeze_objects, listen, raise_descriptor_limit, share_interpreter
from bench.load.wire import World
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.models import model_folder
from ragkv.observe import logs
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import CACHE
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import ADA

DOCUMENTS = 3
"""Of the honest tenant, ready; each hostile one has one."""
QUEUED = 4000
"""Of all hostile tenants, waiting to be read."""
HOSTILE_TENANTS = 10


def main(folder: str) -> None:
    """Print the World as one line of JSON, then serve until the process is told to stop."""
    logs.configure("json", "warning", "serve")
    raise_descriptor_limit()
    share_interpreter()
    model = str(model_folder(Settings(data_dir=CACHE)))
    settings = Settings(data_dir=Path(folder), model=model)
    parts = Parts(settings, EchoEngine(settings, piece_s=0.02), encoder_apart=True)
    parts.prepare()
    redis = EmbeddedRedis(settings)
    redis.start()
    ingest = IngestParts(parts)
    listener = listen("127.0.0.1", 0)
    honest = _tenant(ingest, "honest", DOCUMENTS, 0)
    names = [f"hostile {number}" for number in range(HOSTILE_TENANTS)]
    hostile = [_tenant(ingest, name, 1, QUEUED // HOSTILE_TENANTS) for name in names]
    hostile += [issue_key_by_name(name, "more", ["admin"], parts.database).key for name in names]
    world = World(listener.getsockname()[1], honest, hostile)
    print(msgspec.json.encode(world).decode(), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it once more when it has stopped
    draining = Draining()
    app = create_app(parts, draining, when_built=freeze_objects)
    try:
        Server(app, draining, 1, max_connections=settings.max_connections).run(sockets=[listener])
    finally:
        redis.stop()
        parts.close()


def _tenant(ingest: IngestParts, name: str, documents: int, queued: int) -> str:
    """A key of a new tenant with a few documents that are ready, and some that wait to be read."""
    parts = ingest.parts
    ref = ensure_collection(parts.database, name)
    for number in range(documents):
        body = io.BytesIO(ADA + f"The {number}th note says so again.".encode())
        stored = store_document(
            ref, f"ada {number}.md", body, ingest.parts.intake, {"year": 2000 + number, "lang": "en"}
        )
        ingest_document(stored.document_id, ingest)
    with parts.database.writing() as session:
        session.add_all(
            DocumentRow(
                tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256=str(i), name=f"{i}.md", num_bytes=1
            )
            for i in range(queued)
        )
    return issue_key_by_name(name, "load", ["admin"], parts.database).key


if __name__ == "__main__":
    main(sys.argv[1])
