"""Training samples from unlabelled chunks: something to say of a few passages that stands in one or two of them.

Templates over titles, names and sentences. They need no question and no label, and reward what a reader of
stitched passages must do: find what a title, a name or a sentence refers to, also in another passage. Known questions
may be given besides.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from ragkv.chunk import Chunk

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
        known: Sequence[Sample] = (),
        unanswered: float = 0.0,
    ) -> None:
        """sizes: numbers of chunks in a context, drawn at random. tails: pairs for each context. known: samples of
        known questions, one in turn with each from the chunks. unanswered: share of the pairs without an answer."""
        self._neighbourhoods = [near for near in neighbourhoods if len(near) >= _LEAST_CHUNKS]
        self._random = random.Random(seed)  # noqa: S311 - for samples, not for secrets
        self._sizes = sizes
        self._tails = tails
        self._known = known
        self._unanswered = unanswered
        self._order: list[int] = []
        self._known_order: list[int] = []
        self._is_known_next = False

    def skip(self, count: int) -> None:
        """Leave out the next ones: a run that goes on gets those that it would have got."""
        for _ in range(count):
            self.next()

    def next(self) -> Sample:
        is_known = self._is_known_next
        self._is_known_next = bool(self._known) and not is_known
        chunks, tails = self._from_known() if is_known else (self._from_chunks(), ())
        more = (self._tail(chunks) for _ in range(self._tails - len(tails)))
        return Sample(chunks, (*tails, *more))

    def _from_known(self) -> tuple[tuple[Chunk, ...], tuple[tuple[str, str], ...]]:
        sample = self._known[self._drawn(self._known_order, len(self._known))]
        return tuple(self._random.sample(sample.chunks, len(sample.chunks))), sample.tails

    def _from_chunks(self) -> tuple[Chunk, ...]:
        near = self._neighbourhoods[self._drawn(self._order, len(self._neighbourhoods))]
        return tuple(self._random.sample(list(near), min(self._random.choice(self._sizes), len(near))))

    def _drawn(self, order: list[int], count: int) -> int:
        """The next of `count` in random order, each once before any comes again."""
        if not order:
            order += self._random.sample(range(count), count)
        return order.pop()

    def _tail(self, chunks: Sequence[Chunk]) -> tuple[str, str]:
        if self._unanswered and self._random.random() < self._unanswered:
            return self._question(chunks), ""
        chosen = self._random.choice(chunks)
        sentence = self._sentence(chosen.text)
        kind = self._random.random()
        if kind < _SHARED_NAME and (shared := self._shared_name(chunks)):
            return shared
        if kind < _ABOUT_TITLE:
            return f'What is said of "{chosen.title}"?', sentence
        if kind < _MISSING_NAME and (names := _NAME.findall(sentence)):
            name = self._random.choice(names)
            return f'Which name is missing here: "{sentence.replace(name, "___")}"', name
        words = sentence.split()
        half = max(len(words) // 2, 1)
        return f'How does this go on: "{" ".join(words[:half])}"', " ".join(words[half:]) or sentence

    def _question(self, chunks: Sequence[Chunk]) -> str:
        titles = [chunk.title for chunk in self._random.sample(chunks, min(len(chunks), self._random.choice((1, 2))))]
        if len(titles) == 1:
            return f'What is the most important fact about "{titles[0]}"?'
        return f'What connects "{titles[0]}" and "{titles[1]}"?'

    def _sentence(self, text: str) -> str:
        sentences = [s for s in _SENTENCE_END.split(text) if len(s.split()) > _LEAST_WORDS] or [text]
        return " ".join(self._random.choice(sentences).split()[:MAX_ANSWER_WORDS])

    def _shared_name(self, chunks: Sequence[Chunk]) -> tuple[str, str] | None:
        pairs = list(permutations(chunks, 2))
        for one, other in self._random.sample(pairs, min(_PAIRS, len(pairs))):
            named = {one.title, *_NAME.findall(one.text)}
            both = sorted(named & {other.title, *_NAME.findall(other.text)})
            both = both or [name for name in _NAME.findall(one.text) if name in other.text]
            if both:
                return f'Which name do both "{one.title}" and "{other.title}" mention?', self._random.choice(both)
        return None
