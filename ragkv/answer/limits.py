"""Limits of a question, checked before any other work."""

from ragkv.answer.question import Question
from ragkv.errors import Rejected, TooLarge
from ragkv.settings import BLOCK_SIZES, LEAST_READ
from ragkv.text import clean_question

QUESTION_CHARACTERS = 10_000
INSTRUCTIONS_CHARACTERS = 32_000
"""Instructions of one request, beside its question."""


def check_question(question: Question) -> None:
    """Check a question with its options. Raises TooLarge, or Rejected for an empty question and for options out of
    range."""
    check_question_text(question.text)
    check_instructions(question.instructions)
    if question.recompute_ratio is not None and not 0 <= question.recompute_ratio <= 1:
        raise Rejected("recompute_ratio must be between 0 and 1")
    if question.sparse_ratio is not None and not LEAST_READ <= question.sparse_ratio <= 1:
        raise Rejected(f"sparse_ratio must be between {LEAST_READ} and 1")
    if question.block_size is not None and question.block_size not in BLOCK_SIZES:
        raise Rejected(f"block_size must be between {BLOCK_SIZES[0]} and {BLOCK_SIZES[-1]}")


def check_question_text(question: str) -> None:
    """Check a question's text. Raises TooLarge for a question above the limit, Rejected for an empty one, and for
    one that is no text: a command's arguments may be any bytes."""
    if len(question) > QUESTION_CHARACTERS:
        raise TooLarge(
            f"the question has {len(question):,} characters, more than the {QUESTION_CHARACTERS:,} allowed: shorten it, or "
            "upload the text as a document and ask about that"
        )
    try:
        question.encode()
    except UnicodeEncodeError:
        raise Rejected("the question is not valid UTF-8") from None
    if not clean_question(question):
        raise Rejected("the question is empty: ask something")


def check_instructions(instructions: str) -> None:
    """Check a question's instructions. Raises TooLarge for instructions above the limit."""
    if len(instructions) > INSTRUCTIONS_CHARACTERS:
        raise TooLarge(
            f"the instructions have {len(instructions):,} characters, more than the {INSTRUCTIONS_CHARACTERS:,} allowed: "
            "shorten them, or upload the text as a document"
        )
