"""Limits of a question."""

import os

import pytest

from ragkv.answer.question import Question, check_question
from ragkv.errors import Rejected


@pytest.mark.parametrize(
    ("argument", "reason"), [(b"caf\xe9?", "not valid UTF-8"), (b" \n", "empty"), (b"\x00", "empty")]
)
def test_a_command_is_told_what_is_wrong_with_its_question(argument: bytes, reason: str):
    with pytest.raises(Rejected, match=reason):
        check_question(Question("t", "c", os.fsdecode(argument)))


@pytest.mark.parametrize("text", ["?", "e\u0301", "\u202eabc", "\U0001f469\u200d\U0001f467"])
def test_a_question_of_any_characters_is_one(text: str):
    check_question(Question("t", "c", text))
