"""Pieces of an answer are together exactly the answer: offsets of its citations hold for them."""

import pytest

from ragkv.answer.service import Trimmed


@pytest.mark.parametrize(
    "pieces", [("a", " b", " c"), (" ", "\n a", " ", " b", "  "), ("a ", "", "\n"), ("  ", " "), (" a b ", " c ")]
)
def test_white_space_around_a_text_is_left_out(pieces: tuple[str, ...]):
    trimmed = Trimmed()

    parts = [trimmed.add(piece) for piece in pieces]

    assert "".join(parts) == trimmed.text == "".join(pieces).strip()
    assert all(part == part.rstrip() for part in parts)
