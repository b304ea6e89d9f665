"""Split a parsed document into chunks of at most a given number of the model's tokens.

Sections first: a chunk holds one section or a part of it, or several small ones in a row. What is too long is cut
after paragraphs, else sentences, else lines, else words, into parts of even length. The text is measured in words,
whose tokens are counted once each; the final count is always that of the whole prompt text.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ingest.cuts import Words, cluster_bounds
from ingest.parse import Parsed
from ingest.sections import Part, parts_of
from ragkv.chunk import Chunk, prompt_text
from ragkv.errors import TooLarge
from ragkv.ids import batched
from ragkv.tokenizer import Tokenizer

_TITLE_SHARE = 4  # a title takes at most a fourth of its chunk
_SMALL_SHARE = 8  # a section of less than an eighth of a chunk may share one with its neighbours
_SEAM_TOKENS = 2  # tokens of the parts may be fewer than those of the whole by about this many


@dataclass(frozen=True, slots=True)
class _Draft:
    """A chunk before its tokens are known: characters [start, end) under a title that leaves `budget` tokens for
    them."""

    title: str
    start: int
    end: int
    budget: int

    @classmethod
    def of(cls, part: Part, tokenizer: Tokenizer, chunk_tokens: int) -> "_Draft":
        """The part under its title; under its last heading or a shortened one where the whole path is too long."""
        limit = chunk_tokens // _TITLE_SHARE
        titles = (part.title, part.short_title)
        title = next((t for t in titles if len(t) <= limit or len(tokenizer.encode(t)) <= limit), None)
        start = part.start if title == part.title else part.heading_start
        if title is None:
            _, offsets = tokenizer.encode_with_offsets(part.short_title)
            *_, end, _ = cluster_bounds(part.short_title[: offsets[limit - 1][0] + 1])
            title = part.short_title[:end].rstrip() + "…"
        frame = len(tokenizer.encode(prompt_text(title, "")))
        return cls(title, start, part.end, chunk_tokens - frame - _SEAM_TOKENS)


def split(
    document_id: str,
    parsed: Parsed,
    tokenizer: Tokenizer,
    chunk_tokens: int,
    max_tokens: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> list[Chunk]:
    """Chunks in the order of the text; `prompt_text` of each has at most `chunk_tokens` tokens.

    Every word of the text is in exactly one chunk, but for headings, which stand in the titles of their chunks instead.
    Words are cut only where one has more than half of `chunk_tokens`, and then between grapheme clusters, unless one
    has more than a sixth. The same input gives the same chunks and ids. `watch` is called every now and then, as a long
    text takes minutes; what it raises is raised. Raises TooLarge for a text of more than `max_tokens`.
    """
    words = Words(parsed.text, tokenizer, longest=chunk_tokens // 2, watch=watch)
    if max_tokens is not None and words.num_tokens > max_tokens:
        raise TooLarge(
            f"it has {words.num_tokens:,} tokens of text, more than {max_tokens:,} (RAGKV_MAX_DOCUMENT_TOKENS): split it"
        )
    parts = parts_of(parsed, words, small=chunk_tokens // _SMALL_SHARE, full=chunk_tokens * 3 // 4)
    drafts = [draft for part in parts for draft in _drafts(_Draft.of(part, tokenizer, chunk_tokens), words)]
    fitted: list[tuple[_Draft, list[int]]] = []
    for batch in batched(drafts):
        watch()
        fitted += _fitted(batch, words, parsed.text, tokenizer, chunk_tokens)
    page_starts = [page.start for page in parsed.pages]
    return [
        Chunk(
            id=f"{document_id}:{ordinal}",
            document_id=document_id,
            ordinal=ordinal,
            title=draft.title,
            text=parsed.text[draft.start : draft.end],
            start=draft.start,
            end=draft.end,
            page=parsed.pages[bisect_right(page_starts, draft.start) - 1].number if page_starts else None,
            token_ids=tuple(token_ids),
            page_breaks=tuple(
                start - draft.start
                for start in page_starts[bisect_right(page_starts, draft.start) : bisect_left(page_starts, draft.end)]
            ),
        )
        for ordinal, (draft, token_ids) in enumerate(fitted)
    ]


def _drafts(whole: _Draft, words: Words) -> Iterator[_Draft]:
    for start, end in words.cut(whole.start, whole.end, whole.budget):
        yield _Draft(whole.title, start, end, whole.budget)


def _fitted(
    drafts: Sequence[_Draft], words: Words, text: str, tokenizer: Tokenizer, chunk_tokens: int
) -> list[tuple[_Draft, list[int]]]:
    """Each draft with its token ids; a draft that is too long is cut again."""
    fitted: list[tuple[_Draft, list[int]]] = []
    encoded = tokenizer.encode_batch([prompt_text(d.title, text[d.start : d.end]) for d in drafts])
    for draft, token_ids in zip(drafts, encoded, strict=True):
        excess = len(token_ids) - chunk_tokens
        if excess <= 0:
            fitted.append((draft, token_ids))
            continue
        assert draft.budget > 1, "a title and a word always fit into the smallest chunk (MIN_CHUNK_TOKENS)"
        tighter = _Draft(draft.title, draft.start, draft.end, max(1, draft.budget - excess))
        fitted += _fitted(list(_drafts(tighter, words)), words, text, tokenizer, chunk_tokens)
    return fitted
