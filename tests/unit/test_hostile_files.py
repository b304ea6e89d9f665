"""Files made to harm: each is read or refused with a reason, by parsers that survive, and the next one is read."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.parse import Parsed
from ingest.sandbox.messages import Limits
from ingest.sandbox.parser import Parser
from ragkv.errors import Rejected, TooLarge
from tests.support.hostile_files import corpus, forms

CORPUS = corpus()


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    parser = Parser(Limits(seconds=30, memory_mib=256))
    yield parser
    parser.close()


def read(parser: Parser, name: str, body: bytes) -> Parsed:
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        return parser.parse(name, file)


@pytest.mark.parametrize("kind", sorted({Path(name).suffix for name in CORPUS}))
def test_a_hostile_file_is_read_or_refused_with_the_reason_and_the_next_one_is_read(
    parser: Parser, kind: str, subtests: pytest.Subtests
):
    for name, make in CORPUS.items():
        if name.endswith(kind):
            with subtests.test(name):
                try:
                    outcome = read(parser, name, make()).text
                except Rejected as refusal:
                    outcome = str(refusal)
                    assert outcome.startswith(f"{name}: ")

                assert outcome
                assert not any(words in outcome for words in ("crashed on it", "failed on it"))
                assert read(parser, "next.txt", b"words").text == "words"


def test_forms_that_call_each_other_end_at_the_memory_limit(parser: Parser):
    """A kilobyte that shows a word 10,000,000 times."""
    with pytest.raises(TooLarge, match="256 MiB of memory"):
        read(parser, "forms.pdf", forms(7))


def test_there_are_enough_of_them():
    assert len(CORPUS) > 90
