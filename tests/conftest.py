"""Real servers, each started once; parts over fresh folders."""

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pgserver
import pytest
from sqlalchemy import text

from ingest.parts import IngestParts
from ragkv.db.database import open_engine
from ragkv.models import model_folder
from ragkv.parts import Parts
from ragkv.redis_door import EmbeddedRedis
from ragkv.settings import Settings
from tests.echo_engine import EchoEngine

CACHE = Path(__file__).parents[1] / ".cache"
"""Prepared models outlive a test session."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The oracle runs first: while it fails, nothing else matters."""
    items.sort(key=lambda item: "test_oracle" not in item.nodeid)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives a port that nobody listens on."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find


@pytest.fixture(scope="session")
def language_model() -> Path:
    """The embedded language model's folder."""
    return model_folder(Settings(data_dir=CACHE))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server's URL."""
    folder = Path(tempfile.mkdtemp(prefix="ragkv-pg-"))
    server = pgserver.get_server(folder / "data")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty PostgreSQL database."""
    name = Path(tempfile.mktemp(prefix="t_", dir="")).name.lower()
    _administer(postgres_server, f'CREATE DATABASE "{name}"')
    yield postgres_server.replace("/postgres?", f"/{name}?")
    _administer(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite database that is not there yet."""
    return f"sqlite:///{tmp_path / 'db' / 'ragkv.sqlite3'}"


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def settings(tmp_path: Path, language_model: Path) -> Settings:
    """Settings over an empty data folder."""
    return Settings(data_dir=tmp_path / "data", model=str(language_model), chunk_tokens=64)


@pytest.fixture
def redis_server(settings: Settings) -> Iterator[EmbeddedRedis]:
    """The embedded Redis of `settings`, running."""
    server = EmbeddedRedis(settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def loaded(language_model: Path) -> IngestParts:
    """Models loaded once for all tests of a session."""
    return IngestParts(Parts(Settings(data_dir=CACHE, model=str(language_model))))


@pytest.fixture
def engine(settings: Settings) -> EchoEngine:
    return EchoEngine(settings.max_model_len)


@pytest.fixture
def parts(settings: Settings, engine: EchoEngine, loaded: IngestParts) -> Iterator[Parts]:
    """Prepared parts with an engine that echoes."""
    parts = Parts(settings, engine)
    lend_models(parts, loaded)
    parts.prepare()
    yield parts
    parts.close()


@pytest.fixture
def ingest(parts: Parts, loaded: IngestParts) -> IngestParts:
    """Ingestion over `parts`."""
    ingest = IngestParts(parts)
    ingest.prefiller = loaded.prefiller
    return ingest


def lend_models(parts: Parts, loaded: IngestParts) -> None:
    """Spare `parts` the seconds of loading."""
    parts.encoder = loaded.parts.encoder
    parts.tokenizer = loaded.parts.tokenizer
    parts.model_fingerprint = loaded.parts.model_fingerprint


def _administer(url: str, statement: str) -> None:
    engine = open_engine(url).execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
