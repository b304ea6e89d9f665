"""A question within its conversation: what it may refer back to, the text in the prompt after the passages, and the
messages of a prompt without passages.

The earlier turns never stand before the passages: those are stitched behind the shared prefix, whatever came before.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile

from ragkv.answer.prompt import PromptBuilder
from ragkv.answer.question import Question, Turn

PROMPT_CHARACTERS = 4000
"""How much of the latest turns a prompt repeats."""
LESS_CHARACTERS = (2000, 1000, 500, 250)
"""How much of them where that does not fit: the first that does."""
EARLIER_CHARACTERS = 2000
"""How much of the last question joins a search."""
ANSWER_CHARACTERS = 200
"""How much of the last answer does."""
_INSTRUCTIONS = "Instructions"
_SPEAKERS = {"user": "Question", "assistant": "Answer"}


def referred_to(question: Question) -> str:
    """Text that the question may refer back to, as it is searched for: the last question, and the beginning of the last
    answer. Empty without a conversation."""
    earlier = (
        _last(question.history, "user")[:EARLIER_CHARACTERS],
        _last(question.history, "assistant")[:ANSWER_CHARACTERS],
    )
    return " ".join(filter(None, earlier))


def question_in_prompt(question: Question, fits: Callable[[str], bool] = lambda text: True) -> str:
    """Text after "Question: " in the prompt: the latest turns, from a question on, then the question.

    fits: of a text. Where none with a conversation does, the question is alone. Instructions of the request stand
    before them all: behind the passages, where they leave the KV of those as it is.
    """
    for characters in (PROMPT_CHARACTERS, *LESS_CHARACTERS):
        text = _in_prompt(question, _recent(question.history, characters))
        if fits(text):
            return text
    return _in_prompt(question, ())


def question_and_room(question: Question, prompts: PromptBuilder, answer_tokens: int) -> tuple[str, int]:
    """Text of the prompt behind the passages, and the number of tokens left for them. Raises TooLarge.

    The conversation takes half of the room that there is without it at most: it must not push the passages out.
    """
    alone = _in_prompt(question, ())
    room = prompts.room_for_chunks(alone, answer_tokens)
    if not question.history:
        return alone, room
    most = len(prompts.question_ids(alone)) + room // 2
    text = question_in_prompt(question, lambda text: len(prompts.question_ids(text)) <= most)
    return text, prompts.room_for_chunks(text, answer_tokens)


def _in_prompt(question: Question, recent: Sequence[Turn]) -> str:
    turns = [*recent, Turn("user", question.text)]
    lines = (f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in turns)
    if question.instructions.strip():
        return "\n".join((f"{_INSTRUCTIONS}: {question.instructions.strip()}", *lines))
    return "\n".join(lines).removeprefix(f"{_SPEAKERS['user']}: ")


def _recent(history: Sequence[Turn], characters: int) -> Sequence[Turn]:
    """The latest turns that have so many characters, from a question on. Where that is none, the last question and the
    last turn behind it, of each the beginning."""
    lengths = accumulate(len(turn.text) for turn in reversed(history))
    num_fitting = sum(1 for _ in takewhile(lambda length: length <= characters, lengths))
    questions = [i for i, turn in enumerate(history) if turn.role == "user"]
    fitting = [i for i in questions if i >= len(history) - num_fitting]
    if fitting:
        return history[fitting[0] :]
    last = history[questions[-1] :] if questions else []
    room = characters // 2
    latest = (*last[:1], *last[1:][-1:])
    return [turn if len(turn.text) <= room else replace(turn, text=f"{turn.text[: room - 1]}…") for turn in latest]


def _last(history: Sequence[Turn], role: str) -> str:
    return next((turn.text for turn in reversed(history) if turn.role == role), "")


def messages_of(question: Question) -> list[tuple[str, str]]:
    """The conversation as (role, text), the question last."""
    instructions = [("system", question.instructions)] if question.instructions else []
    return [*instructions, *((turn.role, turn.text) for turn in question.history), ("user", question.text)]
