"""Pictures and other files in a text as base64 are left out, words and keys are not."""

import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from email.message import EmailMessage
from functools import partial
from hashlib import sha256
from random import Random

import pytest

from ingest.parse import parse
from tests.support.growth import assert_linear, read_or_refuse
from tests.support.made_files import docx, odf, paragraph, pdf, pptx, shape, sheet_rows, xlsx

PICTURE = Random(5).randbytes(6_000)
LINE = b64encode(PICTURE).decode()
LINES = encodebytes(PICTURE).decode().strip()
ADDRESS = f"data:image/png;base64,{LINE}"


def mail(text: str) -> bytes:
    message = EmailMessage()
    message["Subject"] = "Weir"
    message.set_content(text)
    return message.as_bytes()


def notebook(source: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "markdown", "source": source}]}).encode()


FILES = {
    "inline": ("a.md", f"The ![gate]({ADDRESS}) weighs.".encode(), "The ![gate]() weighs."),
    "reference": ("a.md", f"The ![gate][i] weighs.\n\n[i]: <{ADDRESS}>\n".encode(), "The ![gate][i] weighs."),
    "tag": ("a.md", f'The <img src="{ADDRESS}"> weighs.'.encode(), 'The <img src=""> weighs.'),
    "address with text": ("a.md", b"The ![](data:image/svg+xml,%%3Csvg%%20d='M(1,2)'%b)" % (b"%20x" * 90), "The ![]()"),
    "wrapped": ("a.md", f"The gate\n\n{LINES}\n\nweighs.".encode(), "The gate\n\nweighs."),
    "indented": ("a.txt", "The gate\n\n    {}\n\nweighs.".format(LINES.replace("\n", "\n    ")).encode(), "The gate\n\nweighs."),
    "notebook": ("a.ipynb", notebook(f"The ![gate]({ADDRESS})"), "The ![gate]()"),
    "org": ("a.org", f"The [[{ADDRESS}]]".encode(), "The [[]]"),
    "json": ("a.json", json.dumps({"a": "The gate", "picture": LINE, "b": [ADDRESS, "x"]}).encode(), "a: The gate\n\nb: x"),
    "lines in json": ("a.json", json.dumps({"a": "The gate", "content": LINES}).encode(), "a: The gate"),
    "slashes of php": ("a.json", json.dumps({"a": "x", "i": LINE}).replace("/", "\\/").encode(), "a: x"),
    "xml": ("a.xml", f"<d><p>The gate</p><i src='{ADDRESS}'/><c><b>{LINES}</b></c></d>".encode(), "The gate"),
    "csv": ("a.csv", f'Name,Icon\nGate,{ADDRESS}\nWall,"{LINES}"\n'.encode(), "Name | Icon\n\nName: Gate\n\nName: Wall"),
    "mail": ("a.eml", mail(f"The gate\n{LINES}\n"), "Weir\n\nThe gate"),
    "url-safe": ("a.txt", b"The gate " + urlsafe_b64encode(PICTURE), "The gate"),
}  # fmt: skip


def test_encoded_files_are_left_out_and_counted(subtests: pytest.Subtests):
    for kind, (name, body, text) in FILES.items():
        with subtests.test(kind):
            parsed = parse(name, body)
            assert parsed.text == text
            assert parsed.left_out.encoded_chars > 300


def test_in_every_format_they_are_left_out_and_headings_and_pages_keep_their_places(subtests: pytest.Subtests):
    files = {
        "a.docx": docx(paragraph(f"Gate {LINE}") + paragraph("Weir", "H1") + paragraph("It holds.")),
        "a.odt": odf("text", f"<text:p>Gate {LINE}</text:p><text:h>Weir</text:h><text:p>It holds.</text:p>"),
        "a.html": f"<p>Gate {LINE}</p><h1>Weir</h1><p>It holds.</p>".encode(),
        "a.rtf": rf"{{\rtf1 Gate {LINE}\par Weir\par It holds.}}".encode(),
        "a.pptx": pptx([shape("Gate", "title") + shape(f"The {LINE}"), shape("Weir", "title") + shape("It holds.")]),
        "a.xlsx": xlsx({"Gate": sheet_rows([["a", LINE]]), "Weir": sheet_rows([["It holds."]])}),
        "a.pdf": pdf([["Gate"], [LINE], ["Weir", "It holds."]], bookmarks=[("Weir", 2)]),
    }
    for name, body in files.items():
        with subtests.test(name):
            parsed = parse(name, body)
            assert parsed.left_out.encoded_chars == len(LINE)
            assert parsed.text.startswith("Gate")
            assert parsed.text.split()[-3:] == ["Weir", "It", "holds."]
            assert [parsed.text[part.start : part.body].strip() for part in parsed.sections[-1:]] in ([], ["Weir"])
            assert all(parsed.text[page.start : page.end].strip().startswith("Weir") for page in parsed.pages[-1:])


def test_words_hashes_and_keys_stay(subtests: pytest.Subtests):
    random = Random(6)
    texts = {
        "one letter": "a" * 20_000,
        "digits": "31415926535897932384" * 200,
        "sequence": "\n".join("ACDEFGHIKLMNPQRSTVWY" * 3 for _ in range(200)),
        "key": f"ssh-rsa {b64encode(random.randbytes(530)).decode()} ann@example.org",
        "hashes": "\n".join(sha256(random.randbytes(9)).hexdigest() for _ in range(100)),
        "integrity": "\n".join(f"sha512-{b64encode(random.randbytes(64)).decode()}" for _ in range(100)),
        "short picture": f"data:image/gif;base64,{b64encode(random.randbytes(40)).decode()}",
        "words": "Donaudampfschifffahrtsgesellschaft" * 50,
        "ruler": "x" + "-" * 3_000 + " word" * 50,
        "prose": "the data: of it, and data:x",
    }
    for kind, text in texts.items():
        with subtests.test(kind):
            parsed = parse("a.txt", text.encode())
            assert (parsed.text, parsed.left_out.encoded_chars) == (text, 0)


def test_leaving_out_takes_linear_time(subtests: pytest.Subtests):
    for piece in (
        "data:",
        "data:image/png;base64,",
        "data:,(",
        "[a]: ",
        "\n[a",
        "A" * 60 + "\n",
        "A" * 59 + " ",
        "A1a" * 40 + "\n",
        " \t",
    ):
        with subtests.test(piece):
            assert_linear(partial(read_or_refuse, "a.txt"), lambda n, piece=piece: b"words " + piece.encode() * n, 2_000)  # fmt: skip
