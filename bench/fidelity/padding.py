"""Longer contexts: questions with other questions' passages added to their own."""

import random
from collections.abc import Sequence
from dataclasses import replace

from ragkv.errors import Rejected
from ragkv.known_questions import KnownQuestion


def padded(question: KnownQuestion, questions: Sequence[KnownQuestion], num_passages: int, seed: int) -> KnownQuestion:
    """The question with passages of the others, drawn with the seed, up to `num_passages` in all.

    Its own passages keep their order; the drawn ones stand anywhere between them. The draw depends on the file, the
    seed and the question's line alone. Raises Rejected if the file has too few other passages.
    """
    own = {passage.text for passage in question.passages}
    candidates = {p.text: p for other in questions for p in other.passages if p.text not in own}
    missing = max(0, num_passages - len(question.passages))
    if missing > len(candidates):
        raise Rejected(
            f"there are only {len(candidates)} passages of other questions, but line {question.line} needs {missing} more: "
            f"give --passages {len(question.passages) + len(candidates)} at most"
        )
    draw = random.Random(f"{seed}:{question.line}")  # noqa: S311 - an experiment's sample, not a secret
    passages = list(question.passages)
    for passage in draw.sample(list(candidates.values()), missing):
        passages.insert(draw.randint(0, len(passages)), passage)
    return replace(question, passages=tuple(passages))
