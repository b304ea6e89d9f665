"""A question within its conversation: the search query, and the text in the prompt after the passages.

The earlier turns never stand before the passages: those are stitched behind the shared prefix, whatever came before.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, takewhile

from ragkv.answer.question import Question, Turn

PROMPT_CHARACTERS = 4000
"""How much of the latest turns a prompt repeats."""
EARLIER_CHARACTERS = 2000
"""How much of the last question joins a search."""
ANSWER_CHARACTERS = 200
"""How much of the last answer does."""
_INSTRUCTIONS = "Instructions"
_SPEAKERS = {"user": "Question", "assistant": "Answer"}


def search_query(question: Question) -> str:
    """The question with what it may refer back to: the last question, and the beginning of the last answer."""
    earlier = (
        _last(question.history, "user")[:EARLIER_CHARACTERS],
        _last(question.history, "assistant")[:ANSWER_CHARACTERS],
    )
    return " ".join(text for text in (question.text, *earlier) if text)


def question_in_prompt(question: Question) -> str:
    """Text after "Question: " in the prompt: the latest turns, from a question on, then the question.

    Instructions of the request stand before them all: behind the passages, where they leave the KV of those as it is.
    """
    turns = [*_recent(question.history), Turn("user", question.text)]
    lines = (f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in turns)
    if question.instructions.strip():
        return "\n".join((f"{_INSTRUCTIONS}: {question.instructions.strip()}", *lines))
    return "\n".join(lines).removeprefix(f"{_SPEAKERS['user']}: ")


def _recent(history: Sequence[Turn]) -> Sequence[Turn]:
    """The latest turns that fit PROMPT_CHARACTERS, from a question on. Where that is none, the last question and the
    last turn behind it, of each the beginning."""
    lengths = accumulate(len(turn.text) for turn in reversed(history))
    num_fitting = sum(1 for _ in takewhile(lambda length: length <= PROMPT_CHARACTERS, lengths))
    questions = [i for i, turn in enumerate(history) if turn.role == "user"]
    fitting = [i for i in questions if i >= len(history) - num_fitting]
    if fitting:
        return history[fitting[0] :]
    last = history[questions[-1] :] if questions else []
    return [_shortened(turn) for turn in (*last[:1], *last[1:][-1:])]


def _shortened(turn: Turn) -> Turn:
    room = PROMPT_CHARACTERS // 2
    return turn if len(turn.text) <= room else replace(turn, text=f"{turn.text[: room - 1]}…")


def _last(history: Sequence[Turn], role: str) -> str:
    return next((turn.text for turn in reversed(history) if turn.role == role), "")
