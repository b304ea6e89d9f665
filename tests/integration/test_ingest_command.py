"""`ragkv ingest`: files read in this process."""

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from sqlalchemy import text, update

from ingest.local import ingest_files
from ingest.parts import IngestParts
from ragkv.db.tables import DocumentRow
from ragkv.kv_rule import KVWhen
from ragkv.settings import Settings
from ragkv.status import Status


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, kv_when=KVWhen.NEVER)


def test_files_without_kv_are_known_when_they_come_again(ingest: IngestParts, tmp_path: Path):
    file = tmp_path / "ada.txt"
    file.write_text("Ada Lovelace wrote the first program.")
    first, again = (ingest_files([file], ingest, Console(file=StringIO())) for _ in range(2))

    assert (first.read, first.known) == (1, 0)
    assert (again.read, again.known, again.failures) == (0, 1, [])


@pytest.mark.parametrize("refused", ["chunks WHEN NEW.text LIKE '%cursed%'", "documents WHEN NEW.name LIKE 'cursed%'"])
def test_an_unexpected_error_with_one_file_leaves_the_others_to_be_read(
    ingest: IngestParts, tmp_path: Path, refused: str
):
    with ingest.parts.database.writing() as session:
        session.execute(text(f"CREATE TRIGGER refuse BEFORE INSERT ON {refused} BEGIN SELECT RAISE(ABORT, 'no'); END"))
    files = [tmp_path / "cursed.txt", tmp_path / "good.txt"]
    for file in files:
        file.write_text(f"These are {file.stem} words.")
    tally = ingest_files(files, ingest, Console(file=StringIO()))

    ((file, reason),) = tally.failures
    assert (tally.read, file) == (1, files[0])
    assert reason.startswith("IntegrityError: ")


def test_chunks_of_documents_of_one_name_stand_together(ingest: IngestParts, tmp_path: Path):
    files = [tmp_path / name / "notes.txt" for name in "abc"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"Bridge {number} is long.\n\n" * 200)
    ingest_files(files, ingest, Console(file=StringIO()))
    with ingest.parts.database.writing() as session:
        session.execute(update(DocumentRow).values(status=Status.READY))
    ref = ingest.parts.default_collection
    chunks = ingest.parts.source.ready_chunks(ref.tenant_id, ref.collection_id)

    places = [(chunk.document_id, chunk.ordinal) for chunk in chunks]
    assert (len(set(dict(places))), max(chunk.ordinal for chunk in chunks) > 0) == (3, True)
    assert places == sorted(places)
