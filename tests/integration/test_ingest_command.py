"""`ragkv ingest`: files read in this process."""

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from ingest.local import ingest_files
from ingest.parts import IngestParts
from ragkv.kv_rule import KVWhen
from ragkv.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, kv_when=KVWhen.NEVER)


def test_files_without_kv_are_known_when_they_come_again(ingest: IngestParts, tmp_path: Path):
    file = tmp_path / "ada.txt"
    file.write_text("Ada Lovelace wrote the first program.")
    first, again = (ingest_files([file], ingest, Console(file=StringIO())) for _ in range(2))

    assert (first.read, first.known) == (1, 0)
    assert (again.read, again.known, again.failures) == (0, 1, [])
