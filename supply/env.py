"""`.env` for compose.yaml: a random secret for every service, readable only by its owner. Never overwritten."""

import os
import secrets
import sys
from pathlib import Path

SECRETS = ("POSTGRES_PASSWORD", "VALKEY_PASSWORD", "QDRANT_API_KEY", "RAGKV_ENGINE_API_KEY", "GRAFANA_PASSWORD")
"""Hexadecimal, so that they may stand in a URL."""


def write_secrets(path: Path) -> None:
    """Write random passwords. Raises FileExistsError for a file that is there: the servers hold the passwords that it
    has."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{name}={secrets.token_hex(32)}\n" for name in SECRETS)


if __name__ == "__main__":
    try:
        write_secrets(Path(".env"))
    except FileExistsError:
        sys.exit(".env is there already and stays as it is")
