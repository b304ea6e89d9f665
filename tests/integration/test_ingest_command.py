"""`ragkv ingest`: files read in this process."""

from io import BytesIO, StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from sqlalchemy import select, text, update

from bench.command import chunks_to_measure
from ingest.local import IngestTally, ingest_files, read_paths
from ingest.parts import IngestParts
from ragkv.errors import NotFound
from ragkv.kv.rule import KVWhen
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, DocumentRow
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
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


def test_files_go_to_the_collection_that_is_named(parts: Parts, tmp_path: Path):
    file = tmp_path / "ada.txt"
    file.write_text("Ada Lovelace wrote the first program.")
    tallies = [read_paths([file], parts, Console(file=StringIO()), "papers") for _ in range(2)]
    assert [(tally.read, tally.known) for tally in tallies] == [(1, 0), (0, 1)]
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(status=Status.READY))
    assert len(chunks_to_measure(parts, "papers")) == 1
    assert chunks_to_measure(parts, "default") == []
    with pytest.raises(NotFound, match="nowhere"):
        chunks_to_measure(parts, "nowhere")


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


class TestChangedFiles:
    """Each text about the toll has a number of its own."""

    @pytest.fixture
    def toll(self, tmp_path: Path) -> Path:
        file = tmp_path / "toll.txt"
        file.write_text("The toll of the bridge is 17 crowns.")
        return file

    def run(self, ingest: IngestParts, *files: Path) -> tuple[IngestTally, str]:
        printed = StringIO()
        tally = ingest_files(files, ingest, Console(file=printed, soft_wrap=True))
        assert tally.failures == []
        return tally, printed.getvalue()

    def texts(self, ingest: IngestParts) -> list[str]:
        with ingest.parts.database.reading() as session:
            return sorted(session.scalars(select(ChunkRow.text)))

    def test_one_replaces_what_was_made_of_its_path_before(self, ingest: IngestParts, toll: Path):
        self.run(ingest, toll)
        first = ids(ingest)
        toll.write_text("The toll of the bridge is 29 crowns.")
        tally, printed = self.run(ingest, toll)

        assert (tally.read, tally.replaced, ids(ingest)) == (1, 1, first)
        assert self.texts(ingest) == ["The toll of the bridge is 29 crowns."]
        assert printed.count("replaces what was made of it before") == 1
        again, printed = self.run(ingest, toll)
        assert (again.read, again.replaced, again.known) == (0, 0, 1) and "changed" not in printed

    def test_the_path_is_the_same_from_any_folder(
        self, ingest: IngestParts, toll: Path, monkeypatch: pytest.MonkeyPatch
    ):
        self.run(ingest, toll)
        toll.write_text("The toll of the bridge is 29 crowns.")
        monkeypatch.chdir(toll.parent)
        assert self.run(ingest, Path("..", toll.parent.name, toll.name))[0].replaced == 1

    def test_a_text_that_another_path_has_too_stays(self, ingest: IngestParts, toll: Path):
        other = toll.with_name("copy.txt")
        other.write_text(toll.read_text())
        self.run(ingest, toll, other)
        assert len(ids(ingest)) == 1
        toll.write_text("The toll of the bridge is 29 crowns.")
        tally, printed = self.run(ingest, toll)
        assert (tally.read, tally.replaced) == (1, 0) and "stays" in printed
        assert len(self.texts(ingest)) == 2

        other.write_text(toll.read_text())
        tally, printed = self.run(ingest, toll, other)
        assert self.texts(ingest) == ["The toll of the bridge is 29 crowns."] and "replaces" in printed

    def test_a_document_that_was_uploaded_as_well_stays(self, ingest: IngestParts, toll: Path):
        self.run(ingest, toll)
        parts = ingest.parts
        store_document(parts.default_collection, "upload.txt", BytesIO(toll.read_bytes()), parts.intake)
        toll.write_text("The toll of the bridge is 29 crowns.")
        self.run(ingest, toll)
        assert len(self.texts(ingest)) == 2

    def test_one_that_cannot_be_read_leaves_the_earlier_text_and_says_so(self, ingest: IngestParts, toll: Path):
        self.run(ingest, toll)
        toll.write_bytes(b"%PDF-1.7 damaged")
        tally = ingest_files([toll], ingest, Console(file=StringIO()))
        ((_, reason),) = tally.failures
        assert reason.startswith('the text is from the earlier file "toll.txt": the new file could not be read: ')
        assert self.texts(ingest) == ["The toll of the bridge is 17 crowns."]


def ids(ingest: IngestParts) -> list[str]:
    with ingest.parts.database.reading() as session:
        return sorted(session.scalars(select(DocumentRow.id)))
