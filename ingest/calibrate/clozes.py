"""Contexts of neighbouring chunks, each with a cloze: a sentence with a name or number left out. Needs no labels."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragkv.chunk import Chunk

CONTEXT_TOKENS = 1000
LEAST_CHUNKS = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SENTENCE_CHARACTERS = range(50, 221)
_GAP = re.compile(r"(?:[A-Z][\w'’-]+(?: (?:of |the )?[A-Z][\w'’-]+)*)|\b\d[\d,.]*\b")
_LEAST_START = 8
"""Characters before the gap: a sentence's first word is capitalised whatever it is."""
_TRIES = 40


@dataclass(frozen=True, slots=True)
class Cloze:
    """A context of chunks, in this order, and a question on one of them but the first, `source`, with its answer."""

    chunks: tuple[Chunk, ...]
    source: Chunk
    question: str
    answer: str


def contexts_of(chunks: Sequence[Chunk]) -> list[tuple[Chunk, ...]]:
    """Runs of chunks that lie one behind the other, each of CONTEXT_TOKENS or a little more. What is left at the end is
    dropped."""
    contexts, run = [], list[Chunk]()
    for chunk in chunks:
        run.append(chunk)
        if sum(one.num_tokens for one in run) >= CONTEXT_TOKENS and len(run) >= LEAST_CHUNKS:
            contexts.append(tuple(run))
            run = []
    return contexts


def clozes_of(contexts: Sequence[Sequence[Chunk]], count: int, seed: int) -> list[Cloze]:
    """`count` clozes, taken from the contexts in turns; fewer if hardly a sentence has a name or number."""
    draw = random.Random(seed)  # noqa: S311 - for questions, not for secrets
    found: dict[tuple[str, str], Cloze] = {}
    for _ in range(_TRIES):
        for context in contexts:
            for cloze in _drawn(context, draw):
                found.setdefault((cloze.question, cloze.answer), cloze)
            if len(found) == count:
                return list(found.values())
    return list(found.values())


def _drawn(context: Sequence[Chunk], draw: random.Random) -> Iterator[Cloze]:
    """A cloze of the context, or none where the sentence that is drawn has no gap."""
    chunk = draw.choice(context[1:])
    sentences = [one for one in _SENTENCE_END.split(chunk.text) if len(one) in _SENTENCE_CHARACTERS]
    if not sentences:
        return
    sentence = draw.choice(sentences)
    gaps = [gap for gap in _GAP.finditer(sentence) if gap.start() > _LEAST_START and gap[0] not in chunk.title]
    if not gaps:
        return
    gap = draw.choice(gaps)
    about = f", about {chunk.title}" if chunk.title else ""
    question = f"{sentence[: gap.start()]}____{sentence[gap.end() :]} What is missing{about}?"
    yield Cloze(tuple(context), chunk, question, gap[0].rstrip(".,"))
