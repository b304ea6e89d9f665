"""One `ragkv serve` with the sample's documents, for all clients."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.programs import STORE
from tests.e2e.service import RAGKV, SAMPLE, Service, environment, started


@pytest.fixture(scope="package")
def environ(tmp_path_factory: pytest.TempPathFactory, language_model: Path) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("clients") / "data", language_model)


@pytest.fixture(scope="package")
def key(environ: dict[str, str]) -> str:
    command = [RAGKV, "keys", "create", "--name", "clients", "--scope", "admin"]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="package")
def service(environ: dict[str, str], key: str, free_port: Callable[[], int]) -> Iterator[Service]:
    """A service with the sample's documents in the collection `papers`."""
    log = Path(environ["RAGKV_DATA_DIR"]).with_name("serve.log")
    with started(environ, free_port(), log) as service:
        service.client.headers["Authorization"] = f"Bearer {key}"
        service.wait_ready()
        store = service.client.post("/v1/vector_stores", json={"name": STORE}).json()["id"]
        for path in sorted(SAMPLE.iterdir()):
            form = {"files": {"file": (path.name, path.read_bytes())}, "data": {"collection": store}}
            assert service.finished(service.client.post("/v1/documents", **form).json()["id"])["status"] == "ready"
        yield service
