"""The comparison of readers: what of a text another reader's lacks."""

import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.measure import readers


def printing(text: str) -> str:
    """A command that prints the text, whatever file it gets."""
    return shlex.join([sys.executable, "-c", f"print({text!r})"])


def test_a_line_is_listed_for_the_reader_that_alone_has_it(subtests: pytest.Subtests):
    for text, other, words, absent, lines in [
        ("One two.\nThree four.", "One two. Three four.", "", "", []),
        ("| Name | Age |\n| Ann | 7 |", "Name: Ann\nAge: 7", "", "", []),
        ("Total\n$320¹ in all", "Total $3201 in all", "320¹", "320¹", ["$320¹ in all"]),
        ("A pump.\nPrice 2.\nPrice 2.", "A pump.\nPrice 2.", "price 2", "", []),
        ("Price 2, cost 1\nPrice 2 of 2", "Price 2", "cost 1 price 2 of 2", "cost 1 of", ["Price 2, cost 1", "Price 2 of 2"]),
    ]:  # fmt: skip
        with subtests.test(text=text):
            expected = readers.Surplus(Counter(words.split()), frozenset(absent.split()), lines)
            assert readers.surplus(text, other) == expected


def test_files_are_compared_and_those_that_one_cannot_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "pump.txt").write_text("The pump costs 320 euros.\n\nSeals cost 7.")
    (tmp_path / "empty.txt").write_text("")
    command = printing("The pump costs 320 euros.\nCarriage is free.")
    monkeypatch.setattr(sys, "argv", ["readers", str(tmp_path), "--other", command])
    readers.main()
    printed = capsys.readouterr().out

    assert "| pump.txt | 8 | 8 | 3 (3) | 3 (3) |" in printed
    assert "| empty.txt | not read: the file is empty | 8 |" in printed
    assert "| .txt | 2 | 1 | 1 | 1 |" in printed
    assert "**pump.txt**, only ours:\n\n- Seals cost 7.\n" in printed
    assert "**pump.txt**, only other:\n\n- Carriage is free.\n" in printed
