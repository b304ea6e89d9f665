"""Training samples from unlabelled chunks: statements about a few passages that can be found in one or two of them.

Templates over titles, names and sentences. They need no question and no label, and reward what a reader of
stitched passages must do: find what a title, a name or a sentence refers to, also in another passage. Known questions
may be given besides.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, permutations
from typing import TypeVar

from ragkv.chunk import Chunk
from ragkv.errors import Rejected

Item = TypeVar("Item")

MAX_ANSWER_WORDS = 32
SIZES = (2, 4, 6, 8, 12, 16)
"""Numbers of chunks in a context."""
_PAIRS = 6
_NAME = re.compile(r"[A-Z][\w'’.-]+(?: (?:of |the |de )?[A-Z][\w'’.-]+)+")
_SENTENCE_END = re.compile(r"(?<=[.!?]) +")
_LEAST_WORDS = 6
_LEAST_CHUNKS = 2
_SHARED_NAME, _ABOUT_TITLE, _MISSING_NAME = 0.4, 0.6, 0.85
"""Shares of the templates, one on top of the other; the rest are continuations."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A context of chunks, in this order, and (question, answer) pairs behind it. The model writes the answer where
    it is empty."""

    chunks: tuple[Chunk, ...]
    tails: tuple[tuple[str, str], ...]


class Samples:
    """An endless supply. Chunks of one neighbourhood (documents that were uploaded together, say) share a context."""

    def __init__(
        self,
        neighbourhoods: Sequence[Sequence[Chunk]],
        seed: int,
        sizes: Sequence[int] = SIZES,
        tails: int = 4,
        questions: Sequence[Sample] = (),
        unanswered: float = 0.0,
    ) -> None:
        """sizes: numbers of chunks in a context, drawn at random. tails: pairs for each context. questions: samples of
        known questions, one in turn with each from the chunks, over all of its chunks or, where a size is 1, over one.
        unanswered: share of the pairs without an answer. Raises Rejected where no neighbourhood has two chunks."""
        self._random = random.Random(seed)  # noqa: S311 - for samples, not for secrets
        self._sizes = sizes
        self._tails = tails
        self._unanswered = unanswered
        large = [near for near in neighbourhoods if len(near) >= _LEAST_CHUNKS]
        if not large:
            raise Rejected("no two chunks of a neighbourhood hold text to ask about: give other documents")
        self._neighbourhoods = self._shuffled(large)
        self._known = self._shuffled(questions)
        self._turns = cycle([self._from_chunks, self._from_known] if questions else [self._from_chunks])

    def skip(self, count: int) -> None:
        """Leave out the next ones: a run that goes on gets those that it would have got."""
        for _ in range(count):
            self.next()

    def next(self) -> Sample:
        sample = next(self._turns)()
        more = (self._tail(sample.chunks) for _ in range(self._tails - len(sample.tails)))
        return replace(sample, tails=(*sample.tails, *more))

    def _from_chunks(self) -> Sample:
        near = next(self._neighbourhoods)
        return Sample(tuple(self._random.sample(list(near), min(self._random.choice(self._sizes), len(near)))), ())

    def _from_known(self) -> Sample:
        sample = next(self._known)
        size = 1 if self._random.choice(self._sizes) == 1 else len(sample.chunks)  # one chunk as often as elsewhere
        return replace(sample, chunks=tuple(self._random.sample(sample.chunks, size)))

    def _shuffled(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items without end, each once before any comes again. None is drawn before it is asked for."""
        while True:
            yield from reversed(self._random.sample(items, len(items)))

    def _tail(self, chunks: Sequence[Chunk]) -> tuple[str, str]:
        if self._unanswered and self._random.random() < self._unanswered:
            return self._question(chunks), ""
        chunk = self._random.choice(chunks)
        sentences = [s for s in _SENTENCE_END.split(chunk.text) if len(s.split()) > _LEAST_WORDS] or [chunk.text]
        sentence = " ".join(self._random.choice(sentences).split()[:MAX_ANSWER_WORDS])
        kind = self._random.random()
        if kind < _SHARED_NAME and (shared := self._shared_name(chunks)):
            return shared
        if kind < _ABOUT_TITLE and chunk.title:
            return f'What is said of "{chunk.title}"?', sentence
        if kind < _MISSING_NAME and (names := _NAME.findall(sentence)):
            name = self._random.choice(names)
            return f'Which name is missing here: "{sentence.replace(name, "___")}"', name
        words = sentence.split()
        half = max(len(words) // 2, 1)
        return f'How does this go on: "{" ".join(words[:half])}"', " ".join(words[half:]) or sentence

    def _question(self, chunks: Sequence[Chunk]) -> str:
        subjects = self._random.sample(chunks, min(len(chunks), self._random.choice((1, 2))))
        titles = [chunk.title for chunk in subjects if chunk.title]
        if not titles:
            return "What is the most important fact in these passages?"
        if len(titles) == 1:
            return f'What is the most important fact about "{titles[0]}"?'
        return f'What connects "{titles[0]}" and "{titles[1]}"?'

    def _shared_name(self, chunks: Sequence[Chunk]) -> tuple[str, str] | None:
        pairs = list(permutations(chunks, 2))
        for chunk, other in self._random.sample(pairs, min(_PAIRS, len(pairs))):
            if not (chunk.title and other.title):
                continue
            named = {chunk.title, *_NAME.findall(chunk.text)}
            both = sorted(named & {other.title, *_NAME.findall(other.text)})
            both = both or [name for name in _NAME.findall(chunk.text) if name in other.text]
            if both:
                return f'Which name do both "{chunk.title}" and "{other.title}" mention?', self._random.choice(both)
        return None
