"""One `ragkv serve` for the modules that need no fresh one."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.service import RAGKV, Service, environment, started


@pytest.fixture(scope="package")
def closed_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("closed") / "data"


@pytest.fixture(scope="package")
def closed_environ(closed_data_dir: Path, language_model: Path) -> dict[str, str]:
    """vLLM says what it always says."""
    return environment(closed_data_dir, language_model) | {"VLLM_LOGGING_LEVEL": "INFO"}


@pytest.fixture(scope="package")
def key(closed_environ: dict[str, str]) -> str:
    """An admin's, made before the service starts: it is closed from the first."""
    command = [RAGKV, "keys", "create", "--name", "tests", "--scope", "admin"]
    return subprocess.run(command, env=closed_environ, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="package")
def closed_service(
    closed_environ: dict[str, str], key: str, closed_data_dir: Path, free_port: Callable[[], int]
) -> Iterator[Service]:
    """A service that needs a key, and a client that has it. Tests of test_operations.py stop it at their end."""
    with started(closed_environ, free_port(), closed_data_dir.with_name("serve.log")) as service:
        service.client.headers["Authorization"] = f"Bearer {key}"
        service.wait_ready()
        yield service
