"""Real packages, unmodified, each driven by a script of its own, against `ragkv serve` with the real engine.

What a client does stands in the tables of docs/OPENAI.md and docs/MCP.md: its script says the same, step by step.
"""

import re
import subprocess
from collections.abc import Callable

import pytest

from tests.clients.programs import STORE, example_command, interpreter
from tests.clients.tables import HERE, ROWS, Row
from tests.e2e.service import Service

pytestmark = pytest.mark.long

TIMEOUT_S = 600
QUIET = {
    "RAGAS_DO_NOT_TRACK": "true",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "DO_NOT_TRACK": "1",
}
"""They call nobody but the service."""


@pytest.fixture
def run(service: Service, environ: dict[str, str], key: str) -> Callable[..., list[str]]:
    """Run a program of a client; its lines."""
    environ = (
        environ
        | QUIET
        | {"CLIENT_URL": str(service.client.base_url).rstrip("/"), "CLIENT_KEY": key, "CLIENT_STORE": STORE}
    )

    def run(*command: str) -> list[str]:
        process = subprocess.run(command, check=False, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
        if process.returncode:
            pytest.fail(f"after {process.stdout.splitlines()}:\n{process.stderr[-3000:]}", pytrace=False)
        return process.stdout.splitlines()

    return run


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.script)
def test_a_client_does_what_the_table_says(row: Row, run: Callable[..., list[str]]):
    assert run(interpreter(row), str(HERE / "scripts" / row.script)) == list(row.steps)


@pytest.mark.parametrize("framework", ["LangChain", "LlamaIndex", "Haystack"])
def test_an_example_runs_as_it_stands(framework: str, run: Callable[..., list[str]], service: Service, key: str):
    url = str(service.client.base_url).rstrip("/")

    assert re.search(r"\w", " ".join(run(*example_command(framework, url, key, "SmolLM2-135M-Instruct"))))
