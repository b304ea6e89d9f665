"""A question within its conversation."""

import pytest

from ragkv.answer.history import (
    ANSWER_CHARACTERS,
    PROMPT_CHARACTERS,
    question_and_room,
    question_in_prompt,
    referred_to,
)
from ragkv.answer.prompt import PromptBuilder, Wording
from ragkv.answer.question import Question, Turn, check_question_text
from ragkv.errors import Rejected
from tests.unit.test_prompt import CHAT, byte_tokenizer

TURNS = (Turn("user", "Who wrote the first program?"), Turn("assistant", "Ada Lovelace."))


def ask(question: str = "When was she born?", history: tuple[Turn, ...] = (), instructions: str = "") -> Question:
    return Question("t", "c", question, history=history, instructions=instructions)


def test_a_question_alone_is_searched_for_and_said_as_it_is():
    assert referred_to(ask()) == ""
    assert question_in_prompt(ask()) == "When was she born?"


@pytest.mark.parametrize(
    ("copied", "plain"),
    [
        ("pass\u200bword of the boat\u00adhouse", "password of the boathouse"),
        ("\ufeffthe ﬁrst o\u2060ﬃce\u202e", "the first office"),
        ("ＩＮＶ－２８１８８ due\u00a0when", "INV-28188 due when"),
        ("谁写了第１２条？", "谁写了第12条？"),
        ("\tcafe\u0301\r\n\U000e0041", "café"),
    ],
)
def test_a_question_and_its_conversation_have_the_characters_that_documents_have(copied: str, plain: str):
    """Search, prompt, record and answer cache see the same text."""
    question = ask(copied, (Turn("user", copied), Turn("assistant", copied)))
    assert question.text == plain
    assert [turn.text for turn in question.history] == [plain, plain]
    assert referred_to(question) == f"{plain} {plain}"


@pytest.mark.parametrize("text", ["\u200b", "\u00ad \ufeff\n", "\U000e0041"])
def test_a_question_of_invisible_characters_is_empty(text: str):
    with pytest.raises(Rejected, match="empty"):
        check_question_text(text)


def test_a_search_knows_what_the_question_refers_back_to():
    assert referred_to(ask(history=TURNS)) == "Who wrote the first program? Ada Lovelace."


def test_a_long_answer_joins_a_search_only_with_its_beginning():
    assert referred_to(ask(history=(Turn("assistant", "x" * 9999),))) == "x" * ANSWER_CHARACTERS


def test_the_prompt_repeats_the_conversation_before_the_question():
    text = question_in_prompt(ask(history=TURNS))

    assert text == "Who wrote the first program?\nAnswer: Ada Lovelace.\nQuestion: When was she born?"


def test_the_oldest_turns_give_way():
    long = Turn("user", "x" * (PROMPT_CHARACTERS - 20))
    assert question_in_prompt(ask(history=(*TURNS, long))).startswith("xxx")


def test_of_a_last_turn_that_is_too_long_the_beginning_stays():
    """A follow-up to a long answer still knows what it is about."""
    asked, answer = Turn("user", "Who wrote the first program?"), Turn("assistant", "Ada" + "x" * PROMPT_CHARACTERS)

    told = question_in_prompt(ask(history=(*TURNS, asked, answer)))
    gone_on = question_in_prompt(ask(history=(asked, answer, Turn("assistant", "That is all."))))
    pasted = question_in_prompt(ask(history=(Turn("user", "y" * 9 * PROMPT_CHARACTERS), answer)))

    assert told.startswith("Who wrote the first program?\nAnswer: Adaxxx")
    assert told.endswith("x…\nQuestion: When was she born?")
    assert len(told) < len(pasted) < PROMPT_CHARACTERS + 100
    assert pasted.startswith("yyy")
    assert gone_on.startswith("Who wrote the first program?\nAnswer: That is all.\nQuestion:")


def test_what_is_repeated_begins_with_a_question():
    """The prompt's own word before it is "Question"."""
    assert question_in_prompt(ask(history=(Turn("assistant", "Hello."),))) == "When was she born?"


def test_instructions_stand_before_the_conversation_and_are_not_searched_for():
    text = question_in_prompt(ask(history=TURNS, instructions="Answer in French.\n"))

    assert text.startswith("Instructions: Answer in French.\nQuestion: Who wrote the first program?\n")
    assert referred_to(ask(history=TURNS, instructions="Answer in French.")) == referred_to(ask(history=TURNS))
    assert question_in_prompt(ask(instructions=" \n")) == "When was she born?"


@pytest.mark.parametrize("window", [2000, 4000, 9000])
def test_a_conversation_leaves_half_of_the_room_to_the_passages(window: int):
    """In scripts whose characters are several tokens each, 4,000 characters may be more than a window."""
    prompts = PromptBuilder(byte_tokenizer(CHAT), Wording("Be brief."), window)
    long = (Turn("user", "왜 그럴까요? " * 300), Turn("assistant", "모릅니다. " * 300))

    alone, room = question_and_room(ask(), prompts, 50)
    told, left = question_and_room(ask(history=long), prompts, 50)

    assert alone == "When was she born?"
    assert room // 2 <= left < room
    assert told.startswith("왜 그럴까요?")
    assert told.endswith("\nQuestion: When was she born?")


def test_a_window_without_room_for_any_of_the_conversation_holds_the_question_alone():
    prompts = PromptBuilder(byte_tokenizer(CHAT), Wording("Be brief."), 200)
    long = (Turn("user", "x" * 5000), Turn("assistant", "y" * 5000))

    assert question_and_room(ask(history=long), prompts, 50) == question_and_room(ask(), prompts, 50)


def test_of_a_short_conversation_nothing_is_left_out_where_there_is_room():
    prompts = PromptBuilder(byte_tokenizer(CHAT), Wording("Be brief."), 1000)

    assert question_and_room(ask(history=TURNS), prompts, 50)[0] == question_in_prompt(ask(history=TURNS))
