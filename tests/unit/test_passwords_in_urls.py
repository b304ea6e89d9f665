"""Passwords of URLs in the settings are in no message and in no line of the log, however detailed it is."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from api.admin.administration import shown_settings
from ragkv.cli.status import status
from ragkv.errors import RagKVError
from ragkv.retrieve.index import Vectors
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.service.base.migrate import migrate
from ragkv.service.health import condition
from ragkv.service.parts import Parts
from ragkv.settings import Settings

SECRET = "hunter2"
NOBODY = f"svc:{SECRET}@127.0.0.1:9"
"""A port that nothing listens on."""
URLS = {
    "engine_url": f"http://{NOBODY}/v1",
    "qdrant_url": f"http://{NOBODY}",
    "redis_url": f"redis://{NOBODY}/0",
    "database_url": f"postgresql://{NOBODY}/ragkv",
    "otlp_endpoint": f"http://{NOBODY}",
}


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(Settings(data_dir=tmp_path, **URLS))


def _index(parts: Parts) -> QdrantIndex:
    return QdrantIndex.connect(parts.settings.qdrant_url)


VECTORS = Vectors(np.ones(4, np.float32), np.ones(1, np.uint32), np.ones(1, np.float32))
WAYS: dict[str, Callable[[Parts], object]] = {
    "engine": lambda parts: asyncio.run(parts.engine.start()),
    "engine's status": lambda parts: asyncio.run(parts.engine.status()),
    "index": lambda parts: _index(parts).ensure(4),
    "search": lambda parts: _index(parts).search("t", "c", VECTORS, 1),
    "rates": lambda parts: parts.rate_limit.take("key"),
    "worker_counters": lambda parts: parts.worker_counters.read(),
    "heartbeats": lambda parts: parts.heartbeats.read(),
    "queue": lambda parts: parts.queue.depth(),
    "upload": lambda parts: parts.queue.enqueue_ingest("document"),
    "database": lambda parts: parts.database.ping(),
    "migrations": lambda parts: migrate(parts.settings.database),
    "default collection": lambda parts: parts.default_collection,
    "settings page": lambda parts: shown_settings(parts.settings),
    "condition": lambda parts: [look(parts) for look in (condition.database, condition.redis, condition.queue)],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_password_is_said_by_nobody(parts: Parts, way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = ""
    try:
        text = repr(WAYS[way](parts))
    except RagKVError as error:
        text = "".join(traceback.format_exception(error))
    finally:
        with suppress(RagKVError):
            parts.close()
    assert SECRET not in text
    assert SECRET not in caplog.text


def test_ragkv_status_shows_places_without_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGKV_DATA_DIR", str(tmp_path))
    for name in ("engine_url", "qdrant_url", "redis_url"):
        monkeypatch.setenv(f"RAGKV_{name.upper()}", URLS[name])
    shown = CliRunner().invoke(status, ["--json"])
    assert shown.exit_code == 0
    assert "127.0.0.1:9" in shown.output
    assert SECRET not in shown.output
