"""A prompt as token ids, with the spans of its parts.

Prompt layout: [0, p)    the model's chat head and the instructions: the shared prefix
               [p, c)    the chunks, each exactly the ids it was prefilled with
               [c, n)    the question and the head of the answer: always computed
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ragkv.chunk import Chunk
from ragkv.engine.protocol import check_window
from ragkv.settings import QUESTION_PLACE
from ragkv.span import Span
from ragkv.tokenizer import Tokenizer

_CONTEXT, _QUESTION = "\x00context\x00", "\x00question\x00"


@dataclass(frozen=True, slots=True)
class Wording:
    """The words around the chunks: the system's instructions, the user's question (QUESTION_PLACE stands for it), and
    how the answer begins. Only the instructions are part of the shared prefix."""

    instructions: str
    question: str = QUESTION_PLACE
    answer_start: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids and the spans of the prefix, of each chunk in order, and of the question."""

    token_ids: tuple[int, ...]
    prefix: Span
    chunks: tuple[Span, ...]
    question: Span


class PromptBuilder:
    """Builds prompts from the model's own chat template and one wording."""

    def __init__(self, tokenizer: Tokenizer, wording: Wording, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._wording = wording
        self._max_tokens = max_tokens
        # The chat template's text before the chunks, between chunks and question, and after the question.
        content = f"Passages:\n\n{_CONTEXT}{wording.question.replace(QUESTION_PLACE, _QUESTION)}"
        template = tokenizer.render_chat(wording.instructions, content) + wording.answer_start
        head, _, behind_context = template.partition(_CONTEXT)
        self._before_question, _, self._tail = behind_context.partition(_QUESTION)
        assert head and self._tail, "the chat template dropped the user's message"
        self.prefix_ids = tuple(tokenizer.encode_template(head))

    def question_ids(self, question: str) -> tuple[int, ...]:
        """Token ids behind the chunks. The question's text never becomes a special token."""
        return (
            *self._tokenizer.encode_template(self._before_question),
            *self._tokenizer.encode(question),
            *self._tokenizer.encode_template(self._tail),
        )

    def answer_ids(self, answer: str) -> tuple[int, ...]:
        """An answer as the model would say it where the prompt ends."""
        apart = self._wording.answer_start and not self._wording.answer_start[-1].isspace()
        return tuple(self._tokenizer.encode(f" {answer}" if apart else answer))

    def build(self, chunks: Sequence[Chunk], question: str, answer_tokens: int) -> Prompt:
        """The prompt of a question over chunks in this order. Raises TooLarge if the window has no room for it."""
        ids, spans = list(self.prefix_ids), []
        for chunk in chunks:
            spans.append(Span(len(ids), len(ids) + chunk.num_tokens))
            ids += chunk.token_ids
        question_span = Span(len(ids), len(ids) + len(question_ids := self.question_ids(question)))
        check_window(question_span.end + answer_tokens, self._max_tokens)
        return Prompt((*ids, *question_ids), Span(0, len(self.prefix_ids)), tuple(spans), question_span)

    def conversation(self, messages: Sequence[tuple[str, str]], answer_tokens: int) -> Prompt:
        """The prompt of a conversation alone, (role, text) each. Raises TooLarge if the window has no room for it."""
        ids = tuple(self._tokenizer.encode_chat(messages))
        check_window(len(ids) + answer_tokens, self._max_tokens)
        return Prompt(ids, Span(0, 0), (), Span(0, len(ids)))

    def room_for_chunks(self, question: str, answer_tokens: int) -> int:
        """Tokens left for chunks. Raises TooLarge if the question alone does not fit."""
        tokens = len(self.prefix_ids) + len(self.question_ids(question)) + answer_tokens
        check_window(tokens, self._max_tokens)
        return self._max_tokens - tokens
