"""What was left out of a document's text: counted in the sandbox, kept with the document, shown by each interface."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from ingest.local import ingest_files
from ingest.parse import Parsed
from ingest.parse.parsed import LeftOut
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ingest.sandbox.messages import Limits
from ingest.sandbox.parser import Parser
from ragkv.kv.rule import KVWhen
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.over_http import Client, upload

OFFER = b"<h1>Offer</h1><p>The pump costs 320 euros.</p><p hidden>Our lowest price is 290 euros.</p>"
LEFT_OUT = LeftOut(hidden_words=12, encoded_chars=75_000)


class CountingParser(Parser):
    """A parser that leaves as much out of every document as its `left_out` says."""

    left_out = LEFT_OUT

    def parse(self, *arguments: Any, **options: Any) -> Parsed:
        return replace(super().parse(*arguments, **options), left_out=self.left_out)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without KV: it shows nothing here."""
    return msgspec.structs.replace(settings, kv_when=KVWhen.NEVER)


@pytest.fixture
def counting(ingest: IngestParts) -> Iterator[CountingParser]:
    """The parser of `ingest`."""
    ingest.parser = parser = CountingParser(Limits(60, 2048))
    yield parser
    parser.close()


def omitted(client: Client, document_id: str) -> list[tuple[int, int]]:
    """Both counts, as the document and its list have them."""
    shown = [client.get(f"/v1/documents/{document_id}").json(), *client.get("/v1/documents").json()["items"]]
    return [(view["omitted_hidden_words"], view["omitted_encoded_characters"]) for view in shown]


def test_the_counts_are_those_of_the_text_that_answers(client: Client, ingest: IngestParts, counting: CountingParser):
    document_id = upload(client, b"The pump costs 320 euros.", "pump.txt").json()["id"]
    assert omitted(client, document_id) == [(0, 0)] * 2
    ingest_document(document_id, ingest)
    assert omitted(client, document_id) == [(12, 75_000)] * 2

    client.put(f"/v1/documents/{document_id}", files={"file": ("pump.txt", b"The pump costs 340 euros.")})
    assert omitted(client, document_id) == [(12, 75_000)] * 2
    counting.left_out = LeftOut()
    ingest_document(document_id, ingest)
    assert omitted(client, document_id) == [(0, 0)] * 2


def test_the_command_line_says_what_was_left_out(ingest: IngestParts, counting: CountingParser, tmp_path: Path):
    file, printed = tmp_path / "pump.txt", StringIO()
    file.write_text("The pump costs 320 euros.")
    for _ in range(2):
        ingest_files([file], ingest, Console(file=printed, soft_wrap=True))

    line = f"{file}: 12 hidden words and 75,000 characters of encoded files left out\n"
    assert printed.getvalue().count(line) == 1


def test_hidden_words_are_read_where_the_setting_says_so(parts: Parts, tmp_path: Path, subtests: pytest.Subtests):
    file = tmp_path / "offer.html"
    file.write_bytes(OFFER)
    for reads, left_out in ((False, LeftOut(hidden_words=6)), (True, LeftOut())):
        parts.settings = msgspec.structs.replace(parts.settings, read_hidden=reads)
        parser = IngestParts(parts).parser
        with subtests.test(reads=reads), file.open("rb") as body:
            parsed = parser.parse(file.name, body)
            assert ("290 euros" in parsed.text, parsed.left_out) == (reads, left_out)
        parser.close()
