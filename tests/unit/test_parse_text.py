"""Plain text and Markdown: encodings, characters, headings."""

import time

import pytest

from ingest.parse import parse
from ragkv.errors import Rejected
from tests.support.growth import read_or_refuse


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252"])
def test_western_text_is_read_in_every_usual_encoding(encoding: str) -> None:
    words = "Plain words, among them a café – and “quotes”."
    assert parse("a.txt", words.encode(encoding)).text == words


@pytest.mark.parametrize(
    ("words", "encoding"), [("Привет, это русский текст", "cp1251"), ("日本語のテキスト", "shift-jis")]
)
def test_an_encoding_that_cannot_be_told_is_refused_rather_than_guessed(words: str, encoding: str) -> None:
    with pytest.raises(Rejected, match="save it as UTF-8"):
        parse("a.txt", words.encode(encoding))


def test_utf8_cut_in_the_middle_of_a_character_keeps_the_rest() -> None:
    assert parse("a.txt", "Grüße aus Köln ü".encode()[:-1]).text == "Grüße aus Köln \ufffd"


def test_line_ends_and_spaces_become_uniform() -> None:
    assert parse("a.txt", b"a\r\nb\rc  \n\n\n\n\nd\x0ce").text == "a\nb\nc\n\nd\ne"


def test_indentation_is_kept() -> None:
    assert parse("a.txt", b"def f():\n    return 1").text == "def f():\n    return 1"


def test_characters_that_no_reader_sees_are_removed() -> None:
    """Tag characters and overrides show a model what they hide from people."""
    hidden = "a\x07b\u200bc\u202ed\u2066e\U000e0041f\u00adg\ufdd0h\ufeffi"
    assert parse("a.txt", hidden.encode()).text == "abcdefghi"


def test_colours_of_a_terminal_are_removed() -> None:
    log = b"\x1b[32mOK\x1b[0m 12 passed\n\x1b[1;31mFAIL\x1b(B\x1b[m [31m] \x1b[?25h\x1b[2Kdone"
    assert parse("ci.log", log).text == "OK 12 passed\nFAIL [31m] done"


def test_text_is_composed_before_offsets_are_taken() -> None:
    assert parse("a.txt", "Cafe\u0301".encode()).text == "Café"


@pytest.mark.parametrize(
    "body", ["a" + "\u0300\u0316" * 300_000, "a" + " " * 1_000_000 + "b", "a" + " \n" * 500_000 + "b"]
)
def test_runs_of_one_kind_of_character_take_no_more_than_linear_time(body: str) -> None:
    started = time.process_time()
    parse("a.txt", body.encode())
    assert time.process_time() - started < 5


def test_underlined_lines_of_plain_text_are_headings() -> None:
    parsed = parse("a.txt", b"Places\n======\n\nHelsby\n------\nA village.\n\nlist:\n--\n")
    assert [(s.title, s.level) for s in parsed.sections] == [("Places", 1), ("Helsby", 2)]
    assert parsed.title == "Places"
    assert parsed.text[parsed.sections[1].body :].startswith("A village.")


def test_markdown_stays_as_it_is_and_shows_its_headings() -> None:
    source = "# Films\n\n## *Ed* Wood [link](x)\n\nText `# no heading`.\n\nSetext\n------\n\n```\n# code\n```\nend"
    parsed = parse("a.md", source.encode())
    assert parsed.text == source
    assert parsed.title == "Films"
    assert [(s.title, s.level) for s in parsed.sections] == [("Films", 1), ("Ed Wood link", 2), ("Setext", 2)]


def test_a_heading_begins_and_ends_where_it_stands() -> None:
    parsed = parse("a.md", b"intro\n\n## One\n\nbody\n\nTwo\n===\nmore")
    assert [parsed.text[s.start : s.body] for s in parsed.sections] == ["## One\n", "Two\n===\n"]


def test_several_top_headings_give_the_document_no_title() -> None:
    assert parse("film_list.md", b"# One\n\ntext\n\n# Two\n\ntext").title == "film list"


@pytest.mark.parametrize(
    ("name", "front"), [("a.mdx", "---\ntitle: 'The Title'\ntags: x\n---"), ("a.md", '+++\ntitle = "The Title"\n+++')]
)
def test_front_matter_gives_the_title_and_no_heading(name: str, front: str) -> None:
    parsed = parse(name, f"{front}\n\n# Other {{#other}}\n\ntext".encode())
    assert parsed.title == "The Title"
    assert [s.title for s in parsed.sections] == ["Other"]


@pytest.mark.parametrize("source", ["[" * 50_000 + "a", ">" * 50_000 + "a", "- " * 20_000 + "a", "# " + "[a](" * 5_000])
def test_nested_markdown_is_read_in_bounded_time(source: str) -> None:
    started = time.process_time()
    read_or_refuse("a.md", source.encode())
    assert time.process_time() - started < 5
