"""Hostile documents on their way through ingestion: they fail with the reason, and the next one becomes ready."""

import io
from collections.abc import Iterator

import msgspec
import psutil
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ingest.sandbox.messages import Limits
from ingest.sandbox.parser import Parser
from ingest.sandbox.verdict import ParserStopped
from ingest.turn import Interrupted
from ragkv.service.base.tables import DocumentRow
from ragkv.service.documents.documents import delete_document, document_view, store_document
from ragkv.service.parts import Parts
from tests.support.hostile_files import docxs, forms, html

SLOW = b"> * a\n" * 1_000_000


AMPLE = Limits(seconds=60, memory_mib=2048)


@pytest.fixture
def parser(ingest: IngestParts) -> Iterator[Parser]:
    """A parser of this test's own."""
    ingest.parser = Parser(AMPLE)
    yield ingest.parser
    ingest.parser.close()


def stored(parts: Parts, name: str, body: bytes) -> str:
    return store_document(parts.default_collection, name, io.BytesIO(body), parts.intake).document_id


def view(parts: Parts, document_id: str):
    return document_view(parts.default_collection.tenant_id, document_id, parts.database)


def test_hostile_documents_fail_with_the_reason_and_the_next_one_becomes_ready(
    parts: Parts, ingest: IngestParts, parser: Parser
):
    parts.settings = msgspec.structs.replace(
        parts.settings, max_document_characters=200_000, max_document_tokens=20_000
    )
    hostile = {
        "line.txt": (b"word " * 50_000, AMPLE, "it has 249,999 characters"),
        "numbers.csv": (b"1,2,3,4\n" * 10_000, AMPLE, "RAGKV_MAX_DOCUMENT_TOKENS"),
        "forms.pdf": (forms(7), Limits(60, 128), "128 MiB of memory to read"),
        "slow.md": (SLOW, Limits(1, 2048), "takes more than 1 s to read"),
        "nested.html": (html()["nested.html"](), AMPLE, "nested too deeply"),
        "entities.docx": (docxs()["entities.docx"](), AMPLE, "entities"),
    }
    for name, (body, parser._limits, reason) in hostile.items():
        document_id = stored(parts, name, body)
        assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
        assert reason in (view(parts, document_id).error or "")

    honest = stored(parts, "ada.txt", b"Ada Lovelace wrote the first program.")
    assert ingest_document(honest, ingest) is IngestOutcome.READY


def test_stopping_and_deleting_end_the_parsing_at_once(parts: Parts, ingest: IngestParts, parser: Parser):
    """Long before the document is parsed, and for a stop without costing an attempt."""
    document_id = stored(parts, "slow.md", SLOW)

    def stop(stage: str, done: int, total: int) -> None:
        if _children(parser):
            raise Interrupted

    with pytest.raises(Interrupted):
        ingest_document(document_id, ingest, stop)
    with parts.database.reading() as session:
        assert session.get_one(DocumentRow, document_id).attempts == 0

    def delete(stage: str, done: int, total: int) -> None:
        if _children(parser) and not deleted:
            deleted.append(stage)
            delete_document(parts.default_collection.tenant_id, document_id, parts.removal)

    deleted: list[str] = []
    assert ingest_document(document_id, ingest, delete) is IngestOutcome.SKIPPED
    assert deleted == ["parse"]
    assert _children(parser) == []


def test_a_parser_that_is_killed_three_times_fails_the_document(parts: Parts, ingest: IngestParts, parser: Parser):
    document_id = stored(parts, "slow.md", SLOW)

    def kill(stage: str, done: int, total: int) -> None:
        for child in _children(parser):
            child.kill()

    for _ in range(2):
        with pytest.raises(ParserStopped):
            ingest_document(document_id, ingest, kill)
    assert ingest_document(document_id, ingest, kill) is IngestOutcome.FAILED
    assert "ran out of memory" in (view(parts, document_id).error or "")
    ingest.parser.close()


def _children(parser: Parser) -> list[psutil.Process]:
    return [child for server in parser._servers.values() for child in psutil.Process(server.process.pid).children()]
