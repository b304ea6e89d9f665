"""Tables of clients in the documentation name the scripts and the versions that `make test-clients` runs."""

from tests.clients.tables import HERE, ROWS, examples, pins

HELPERS = {"langchain", "mcp", "node", "openai", "rapidfuzz", "zod"}
"""What a client needs beside it, or what stands in the table by another list."""


def test_every_script_has_a_row():
    scripts = {path.name for path in HERE.glob("scripts/use_*")}

    assert scripts == {row.script for row in ROWS}
    assert len(ROWS) == len(scripts)


def test_the_versions_are_those_that_are_installed():
    pinned = set().union(*map(pins, ("requirements.txt", "requirements-openai2.txt", "package.json")))
    named = {package for row in ROWS for package in row.packages}

    assert named <= pinned
    assert {package.split()[0] for package in pinned - named} <= HELPERS


def test_three_frameworks_are_shown():
    assert list(examples()) == ["LangChain", "LlamaIndex", "Haystack"]
