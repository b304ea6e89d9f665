"""Real servers, each started once; parts over fresh folders."""

import gc
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pgserver
import pytest
import torch
from sqlalchemy import Connection, make_url, text

from ingest.parts import IngestParts
from ragkv.models import model_folder
from ragkv.object_store import StoreLocation
from ragkv.service.base.database import open_engine
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.migrate import migrate
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support import oidc_provider as oidc
from tests.support.echo_engine import EchoEngine

ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
STARTS_ENGINE = ("tests/engine/", "tests/e2e/", "tests/browser/test_flow.py")
LONG = ("tests/integration/test_schema.py", "tests/integration/test_writers.py", "tests/browser/test_pages.py")
"""A minute and more each."""
SQLITE_SUFFICES = tuple(
    f"tests/integration/{name}"
    for name in (
        "test_documents.py::TestAskingOfSome",
        "test_documents.py::TestChanges",
        "test_documents.py::TestEvents",
        "test_health.py",
        "test_jobs.py",
        "test_keys.py",
        "test_kv_remote.py",
        "test_kv_room.py::TestEviction",
        "test_pruning.py",
        "test_watch.py",
        "test_webhooks.py",
    )
)
"""Tests of both databases that hold no lock, dialect or migration: with PostgreSQL they are `long`."""
CACHE = Path(__file__).parents[1] / ".cache"
"""Prepared models outlive a test session."""


def pytest_configure(config: pytest.Config) -> None:
    """One thread a process, in the engines that tests start, too: on a busy machine two wait for each other, spinning,
    ten times as long as they compute. And inductor need not try out a compiler at every start of an engine.
    """
    torch.set_num_threads(1)
    os.environ.update(ONE_THREAD)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The oracle runs first: while it fails, nothing else matters. What else starts an engine comes right after it,
    then the long files: one that began last would go on beside idle processes.
    """
    for item in items:
        if item.nodeid.startswith(SQLITE_SUFFICES) and "postgres_url" in item.nodeid:
            item.add_marker(pytest.mark.long)
    items.sort(
        key=lambda item: (
            "test_oracle" not in item.nodeid,
            not starts_engine(item.nodeid),
            not item.nodeid.startswith(LONG),
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        _keep_to_the_end()
        gc.set_threshold(700, 10, 100)  # by itself it looks through everything after each third app
        gc.enable()


def _keep_to_the_end() -> None:
    """What was imported up to now stays to the end: the garbage collector need not look through 700,000 objects again
    and again, a third of the time that making an app takes."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries that look for leaks at the interpreter's end find none."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With several processes (pytest -n), one of them runs every test that starts an engine; each other file stays
    whole."""
    from tests.support.lanes import Lanes

    return Lanes(config, log)


def starts_engine(nodeid: str) -> bool:
    return nodeid.startswith(STARTS_ENGINE)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives a port that nobody listens on."""
    from tests.support.over_http import free_port

    return free_port


@pytest.fixture(scope="session")
def language_model() -> Path:
    """The embedded language model's folder."""
    return model_folder(Settings(data_dir=CACHE))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server's URL. What it keeps need not survive a power cut: it waits for no disk."""
    folder = Path(tempfile.mkdtemp(prefix="ragkv-pg-"))
    server = pgserver.get_server(folder / "data")
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        server.psql(f"ALTER SYSTEM SET {name} = off")
    server.psql("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_admin(postgres_server: str) -> Iterator[Connection]:
    """A connection on which databases are made and dropped."""
    engine = open_engine(postgres_server)
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str, postgres_admin: Connection) -> str:
    """The name of a migrated PostgreSQL database, to be copied."""
    postgres_admin.execute(text("CREATE DATABASE migrated"))
    migrate(_database_of(postgres_server, "migrated"))
    return "migrated"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "ragkv.sqlite3"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def postgres_url(postgres_server: str, postgres_admin: Connection) -> Iterator[str]:
    """An empty PostgreSQL database."""
    with _new_database(postgres_server, postgres_admin, "template1") as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite database that is not there yet."""
    return f"sqlite:///{tmp_path / 'db' / 'ragkv.sqlite3'}"


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn, empty."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def migrated_postgres_url(postgres_server: str, postgres_admin: Connection, postgres_template: str) -> Iterator[str]:
    """A PostgreSQL database with the newest schema and nothing in it."""
    with _new_database(postgres_server, postgres_admin, postgres_template) as url:
        yield url


@pytest.fixture
def migrated_sqlite_url(sqlite_url: str, sqlite_template: Path) -> str:
    """A SQLite database with the newest schema and nothing in it."""
    copy_template(sqlite_template, sqlite_url)
    return sqlite_url


@pytest.fixture(params=["migrated_sqlite_url", "migrated_postgres_url"], ids=["sqlite_url", "postgres_url"])
def migrated_url(request: pytest.FixtureRequest) -> str:
    """Each kind of database in turn, with the newest schema and nothing in it."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of a server that speaks S3."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_place(s3_endpoint: str) -> StoreLocation:
    """An empty prefix of a bucket there."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    httpx.put(f"{s3_endpoint}/{bucket}").raise_for_status()
    return StoreLocation(f"s3://{bucket}/some/prefix", s3_endpoint, "us-east-1", "key", "secret")


@pytest.fixture(scope="session")
def oidc_process(free_port: Callable[[], int]) -> Iterator[oidc.OIDCProvider]:
    """An OpenID Connect provider in a process of its own."""
    with oidc.running(free_port()) as provider:
        yield provider


@pytest.fixture
def oidc_provider(oidc_process: oidc.OIDCProvider) -> Iterator[oidc.OIDCProvider]:
    """The provider, which behaves until it is told otherwise."""
    yield oidc_process
    oidc_process.misbehave()


@pytest.fixture
def settings(tmp_path: Path, language_model: Path) -> Settings:
    """Settings over an empty data folder."""
    return Settings(data_dir=tmp_path / "data", model=str(language_model), chunk_tokens=64, refusals_per_minute=0)


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
    ingest = IngestParts(Parts(Settings(data_dir=CACHE, model=str(language_model))))
    ingest.load_models()  # imports as many objects again
    _keep_to_the_end()
    return ingest


@pytest.fixture
def engine(settings: Settings) -> EchoEngine:
    return EchoEngine(settings)


@pytest.fixture
def parts(settings: Settings, engine: EchoEngine, loaded: IngestParts, sqlite_template: Path) -> Iterator[Parts]:
    """Prepared parts with an engine that echoes."""
    copy_template(sqlite_template, settings.database)
    parts = Parts(settings, engine)
    lend_models(parts, loaded)
    parts.prepare()
    yield parts
    parts.close()


@pytest.fixture
def ingest(parts: Parts, loaded: IngestParts) -> IngestParts:
    """Ingestion over `parts`."""
    return ingest_over(parts, loaded)


def lend_models(parts: Parts, loaded: IngestParts) -> None:
    """Spare `parts` the seconds of loading."""
    parts.encoder = loaded.parts.encoder
    parts.tokenizer = loaded.parts.tokenizer
    parts.fingerprints = loaded.parts.fingerprints


def ingest_over(parts: Parts, loaded: IngestParts) -> IngestParts:
    """Ingestion over `parts`, with the parser of `loaded` and an engine that echoes."""
    ingest = IngestParts(parts, engine=EchoEngine(parts.settings))
    ingest.parser = loaded.parser
    return ingest


def copy_template(template: Path, url: str) -> None:
    """Spare a new SQLite database its migrations. Another kind, and one that is there, is left alone."""
    database = make_url(url)
    if database.drivername == "sqlite" and not Path(str(database.database)).exists():
        folder = Path(str(database.database)).parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy(template, str(database.database))


@contextmanager
def _new_database(server: str, admin: Connection, template: str) -> Iterator[str]:
    name = Path(tempfile.mktemp(prefix="t_", dir="")).name.lower()
    admin.execute(text(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'))
    yield _database_of(server, name)
    admin.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))


def _database_of(server: str, name: str) -> str:
    return server.replace("/postgres?", f"/{name}?")
