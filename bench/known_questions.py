"""Questions with known answers and the passages that are their context.

Each line of the file is one question, `{"question", "answers", "passages": [{"title", "text"}]}`. `answers` are ways to
say the same, the first is the one whose probability is measured. Other fields are ignored, `id` is kept. A passage that
a question has twice is read once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from bench.measuring import read_lines
from ragkv.chunk import Chunk, prompt_text
from ragkv.errors import Rejected
from ragkv.tokenizer import Tokenizer

_HINT = ": give a file of JSON lines, a question each"
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Source(msgspec.Struct, frozen=True):
    """A passage as the file has it."""

    text: _Text
    title: str = ""


class _Line(msgspec.Struct, frozen=True):
    question: _Text
    answers: Annotated[list[_Text], msgspec.Meta(min_length=1)]
    passages: Annotated[list[Source], msgspec.Meta(min_length=1)]
    id: int | str = ""


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """A question with its context in the file's order. `line` counts from 1 and names it: ids may repeat."""

    line: int
    id: str
    text: str
    answers: tuple[str, ...]
    passages: tuple[Source, ...]

    def chunks(self, tokenizer: Tokenizer) -> tuple[Chunk, ...]:
        """Each passage as one chunk, its prompt text that of a small document with the passage's title."""
        texts = [prompt_text(passage.title, passage.text) for passage in self.passages]
        return tuple(
            Chunk(f"{self.line}:{i}", str(self.line), i, p.title, p.text, 0, len(p.text), None, tuple(ids))
            for i, (p, ids) in enumerate(zip(self.passages, tokenizer.encode_batch(texts), strict=True))
        )


def read_questions(path: Path) -> list[KnownQuestion]:
    """Every question of the file. Raises Rejected, naming file and line, for what is none."""
    questions = []
    for number, line in read_lines(path, _Line, hint=_HINT):
        unique: dict[str, Source] = {}
        for passage in line.passages:
            unique.setdefault(passage.text, passage)
        answers, passages = tuple(line.answers), tuple(unique.values())
        questions.append(KnownQuestion(number, str(line.id), line.question, answers, passages))
    if not questions:
        raise Rejected(f"{path}: no questions in it")
    return questions
