"""The words of a text with their token counts, and the places where the text is cut into chunks."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from ragkv.ids import batched
from ragkv.tokenizer import Tokenizer

# A word here includes the space before it: byte-level and SentencePiece vocabularies both split there, so the tokens of
# a text are those of its words. None begins inside a grapheme cluster (Unicode Standard Annex 29).
_EXTENDING = r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
_END = rf"[。！？]{_EXTENDING}*"
_PIECE = regex.compile(rf"\s*(?:[^\s。！？]+(?:{_END})*|(?:{_END})+)")
# With the space before it, too. Flags apart: at each, \X counts all regional indicators that come before it.
_CLUSTER = regex.compile(rf"\s*(?:\p{{RI}}{{2}}{_EXTENDING}*|\X)")
_ENCODE_AT_ONCE = 20_000
_LONG_PIECE_CHARS = 4_096
_FRAGMENT_TOKENS = 8
_CLUSTER_SHARE = 3  # a grapheme cluster stays whole up to a third of the tokens of the longest word that does

# Citations use stricter ends of sentences (`ragkv.answer.sentences`); here a superfluous place does no harm. A change
# of these patterns changes chunks, so that stored KV is computed again.
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(
    r"(?<![\s.(][A-Z])(?<!\b[DMSJ]r)(?<!\bM[rs]s)(?<!\bSt)(?<!\bNo)(?<!\bvs)"
    r"[.!?…。！？؟۔]['\")\]”’»]*(?:\[\d+\])*(?:\s+(?![a-z])|(?<=[。！？]))"
)
_LINE = re.compile(r"\n\s*")
_BREAKS = (_PARAGRAPH, _SENTENCE, _LINE)

_Ints = NDArray[np.int64]


class Words:
    """The words of a text: their places and token counts."""

    def __init__(self, text: str, tokenizer: Tokenizer, longest: int, watch: Callable[[], None] = lambda: None) -> None:
        """A word of more than `longest` tokens is split, so that it can be cut. `watch` is called every now and then;
        what it raises is raised."""
        pieces = _PIECE.findall(text)
        counts = _token_counts(pieces, tokenizer, watch)
        long = {piece for piece, tokens in counts.items() if tokens > longest}
        if long:
            most = longest // _CLUSTER_SHARE
            parts = (_fragments(piece, tokenizer, most, watch) if piece in long else (piece,) for piece in pieces)
            pieces = list(chain.from_iterable(parts))
            counts |= _token_counts([piece for piece in pieces if piece not in counts], tokenizer, watch)
        words = map(str.lstrip, pieces)
        self._text = text
        self._ends: _Ints = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        self._starts: _Ints = self._ends - np.fromiter(map(len, words), np.int64, len(pieces))
        self._tokens_before: _Ints = np.cumsum(np.array([0, *(counts[piece] for piece in pieces)], np.int64))

    @property
    def num_tokens(self) -> int:
        """Tokens of all words."""
        return int(self._tokens_before[-1])

    def count(self, start: int, end: int) -> int:
        """Tokens of the words that begin in characters [start, end)."""
        begin, after = np.searchsorted(self._starts, [start, end])
        return int(self._tokens_before[after] - self._tokens_before[begin])

    def cut(self, start: int, end: int, budget: int) -> Iterator[tuple[int, int]]:
        """Character ranges that hold all words of [start, end), in parts of at most `budget` tokens.

        Parts are filled as far as paragraphs, sentences and lines allow; the last two share the remainder evenly, so
        that no small part is left over.
        """
        word, last = map(int, np.searchsorted(self._starts, [start, end]))
        while word < last:
            following = self._next_cut(word, last, max(1, budget))
            yield int(self._starts[word]), int(self._ends[following - 1])
            word = following

    def _next_cut(self, word: int, last: int, budget: int) -> int:
        """The first word of the part that follows the one beginning at word `word`."""
        sums = self._tokens_before
        left = int(sums[last] - sums[word])
        if left <= budget or last == word + 1:  # a word alone stays whole, however long
            return last
        limit = int(np.searchsorted(sums, sums[word] + budget, side="right")) - 1
        limit = max(limit, word + 1)
        ideal = budget if left > 2 * budget else (left + 1) // 2
        target = min(limit, int(np.searchsorted(sums, sums[word] + ideal)))
        offset = int(self._starts[word])
        window = self._text[offset : int(self._starts[limit]) + 1]
        # Less than an ordinary part only where that has no break, as in the middle of a table's row.
        ordinary = max(left - budget, ideal * 3 // 4) if left <= 2 * budget else budget * 5 // 8
        for lowest in (ordinary, min(ordinary, budget * 5 // 8), budget // 3):
            earliest = min(max(int(np.searchsorted(sums, sums[word] + lowest)), word + 1), limit)
            for pattern in _BREAKS:  # the strongest break of [earliest, limit], and of those the nearest to the target
                places = [offset + match.end() for match in pattern.finditer(window)]
                matches = np.searchsorted(self._starts, places)
                matches = matches[(matches >= earliest) & (matches <= limit)]
                if matches.size:
                    return int(matches[np.argmin(np.abs(matches - target))])
        return target


def _token_counts(pieces: list[str], tokenizer: Tokenizer, watch: Callable[[], None]) -> dict[str, int]:
    """Tokens of each distinct piece. Very long pieces are not encoded: they count as one token a character."""
    counts = {piece: len(piece) for piece in pieces}
    distinct = [piece for piece, length in counts.items() if length <= _LONG_PIECE_CHARS]
    for batch in batched(distinct, _ENCODE_AT_ONCE):
        watch()
        counts |= zip(batch, map(len, tokenizer.encode_batch(list(batch))), strict=True)
    return counts


def _fragments(piece: str, tokenizer: Tokenizer, most: int, watch: Callable[[], None]) -> Iterator[str]:
    """Cut a piece every few tokens, between grapheme clusters; inside those that take more than `most` tokens, between
    characters."""
    begin = 0
    while begin < len(piece):
        watch()
        window = piece[begin : begin + _LONG_PIECE_CHARS + 1]
        bounds = cluster_bounds(window)
        # Behind the window its last cluster may go on: it belongs to the next, unless it fills this one.
        stop = bounds[-1] if begin + len(window) == len(piece) else bounds[-2] or _LONG_PIECE_CHARS
        _, offsets = tokenizer.encode_with_offsets(window[:stop])
        starts = [start for start, _ in offsets]
        places = {0, stop}
        for index in range(0, len(starts), _FRAGMENT_TOKENS):
            bound = bounds[bisect_right(bounds, starts[index]) - 1]
            places.add(bound if index - bisect_left(starts, bound) <= most else starts[index])
        yield from (window[start:end] for start, end in pairwise(sorted(places)))
        begin += stop


def cluster_bounds(text: str) -> list[int]:
    """Ascending places between grapheme clusters, both ends of the text among them."""
    return [0, *(cluster.end() for cluster in _CLUSTER.finditer(text))]
