"""Citations in documents of every format: the mark lies on the cited words, on the page that the citation names."""

from collections.abc import Callable
from email.message import EmailMessage

import msgspec
import pytest

from ingest.parse import parse
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.kv.rule import KVWhen
from ragkv.settings import Settings
from tests.support.cited_marks import citations_in, faults
from tests.support.made_files import docx, epub, odf, paragraph, pdf, pptx, shape, sheet_rows, slide, xlsx
from tests.support.over_http import Client, upload
from tests.unit.test_parse_pdf_tables import ROWS, lines, table

WORDS = (
    "The Danube rises in the Black Forest. It is 2,850 km long.",
    "Ten countries share it: “the river of many seas”.",
)
CELLS: list[list[object]] = [["River", "Length"], ["Danube", 2850], ["Rhône", 813]]
LIST = '<text:p xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">{}</text:p>'


def _mail() -> bytes:
    message = EmailMessage()
    message["Subject"] = "Größe"
    message.set_content("\n\n".join(WORDS))
    return message.as_bytes()


FILES: dict[str, Callable[[], bytes]] = {
    "a.txt": lambda: "\n\n".join(WORDS).encode(),
    "a.md": f"# Rivers\n\n{WORDS[0]}\n\n* {WORDS[1]}\n".encode,
    "a.html": f"<html><body><h1>Rivers</h1><p>{WORDS[0]}<p>&lt;b&gt; <b>{WORDS[1]}</b>".encode,
    "a.pdf": lambda: pdf([["The Danube rises in the Black", "Forest. It is long."], ["Ten countries share it."]]),
    "table.pdf": lambda: table(ROWS, lines(ROWS)),
    "a.docx": lambda: docx("".join(map(paragraph, WORDS))),
    "a.csv": lambda: "\n".join(",".join(map(str, row)) for row in CELLS).encode(),
    "a.xlsx": lambda: xlsx({"Long": sheet_rows(CELLS), "Short": sheet_rows([CELLS[0], ["Pader", 4]])}),
    "a.pptx": lambda: pptx([slide(shape("Rivers", "title") + shape(WORDS[0])), slide(shape(WORDS[1]))]),
    "a.odt": lambda: odf("text", "".join(map(LIST.format, WORDS))),
    "a.epub": lambda: epub([f"<h1>Rivers</h1><p>{WORDS[0]}</p>", f"<p>{WORDS[1]}</p>"]),
    "a.rtf": lambda: rb"{\rtf1 The Danube rises in the Black Forest.\par It is 2,850 km long.}",
    "a.eml": _mail,
    "a.json": lambda: b'{"rivers": [{"name": "Danube", "words": "It is long. It is wide."}]}',
    "a.xml": lambda: b"<rivers><river>The Danube is long.</river><river>The Pader is short.</river></rivers>",
    "a.ipynb": lambda: (
        b'{"cells": [{"cell_type": "markdown", "source": ["# Rivers\\n", "\\n", "The Danube is long."]}], '
        b'"metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    ),
    "a.rst": f"Rivers\n======\n\n{WORDS[0]}\n".encode,
    "a.org": f"* Rivers\n\n{WORDS[0]}\n".encode,
}
PAGES = {
    "a.xlsx": ("sheet 2", 2, "River | Length\n\nRiver: Pader | Length: 4"),
    "a.pptx": ("slide 2", 2, WORDS[1]),
}
"""The page of the last citation: its name, number and text without its heading."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without KV: it shows nothing here."""
    return msgspec.structs.replace(settings, kv_when=KVWhen.NEVER)


def test_every_sentence_is_marked_on_the_page_that_its_citation_names(client: Client, ingest: IngestParts):
    for name, make in FILES.items():
        body = make()
        document_id = str(upload(client, body, name).json()["id"])
        ingest_document(document_id, ingest)
        cited = citations_in(document_id, ingest.parts.database)

        assert cited, (name, client.get(f"/v1/documents/{document_id}").json()["error"])
        parsed = parse(name, body)
        for one in cited:
            assert list(faults(client, document_id, parsed, body, one)) == [], (name, one)
        if name in PAGES:
            words, number, whole_page = PAGES[name]
            assert cited[-1].page == number
            assert f"<span>{words}</span>" in client.get(f"/admin/documents/{document_id}").text
            asked = {"question": cited[-1].quote, "document_ids": [document_id], "top_k": 1}
            assert client.post("/v1/search", json=asked).json()["passages"][0]["page_label"] == words
            range_ = {"start": cited[-1].start, "end": cited[-1].end}
            whole = client.get(f"/v1/documents/{document_id}/text", params=range_).json()
            shown = whole["before"] + whole["cited"] + whole["after"]
            assert shown == whole_page
