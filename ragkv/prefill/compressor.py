"""KV of chunks, reduced to the tokens that a compression keeps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from ragkv.answer.prompt import PromptBuilder
from ragkv.ids import batched
from ragkv.kv.file import PlainKV, StoredKV, block_means
from ragkv.kv.layout import Layout
from ragkv.kv.rule import Compression
from ragkv.prefill.methods import CUE, METHODS, kept_tokens
from ragkv.prefill.prefixed import load_model
from ragkv.prefill.view import ChunkView, Watcher

AT_ONCE = 8
"""Chunks of one batch: their queries and keys in all layers are in memory at a time."""


def load_watcher(model_folder: Path, layout: Layout, prompts: PromptBuilder) -> Watcher:
    """The served model, without a writer, with the cue as prompts would hold a question."""
    model = load_model(model_folder, layout.dtype).requires_grad_(False)
    return Watcher(model, prompts.prefix_ids, prompts.question_ids(CUE))


class Compressor:
    """Leaves tokens out of chunks' KV. Which ones stay, the plain model says, whoever wrote the KV."""

    def __init__(self, layout: Layout, load: Callable[[], Watcher]) -> None:
        """load: called when a method first looks at what the model reads."""
        self._layout = layout
        self._load = load

    @cached_property
    def _watcher(self) -> Watcher:
        return self._load()

    def compressed(
        self, chunks: Sequence[Sequence[int]], kvs: Sequence[StoredKV], compression: Compression
    ) -> list[PlainKV]:
        """KV of the tokens that stay of each chunk, given its token ids and the KV of all of them. Pass chunks of
        similar length to waste little."""
        views = self.views(chunks, [compression.method])
        return [self.left_of(kv, view, compression) for kv, view in zip(kvs, views, strict=True)]

    def views(self, chunks: Sequence[Sequence[int]], methods: Sequence[str]) -> list[ChunkView]:
        """A view of each chunk that is enough for these methods."""
        if not any(METHODS[method].looks for method in methods):
            return [ChunkView(0, len(chunk), 0, (), ()) for chunk in chunks]
        return [view for batch in batched(chunks, AT_ONCE) for view in self._watcher.views(batch)]

    def left_of(self, kv: StoredKV, view: ChunkView, compression: Compression) -> PlainKV:
        """KV of the tokens that stay of a chunk, taken from that of all of them."""
        offsets = kept_tokens(compression, view)
        return replace(rows_of(kv, offsets, self._layout), kept=torch.tensor(offsets, dtype=torch.int32))


def rows_of(kv: StoredKV, offsets: Sequence[int], layout: Layout) -> PlainKV:
    """The tokens at `offsets`, ascending, as if they were a chunk. Their keys are un-rotated: they may stand at any
    positions.

    Initial and local vectors stay the whole chunk's; mean keys are those of blocks of what is left.
    """
    shape = (layout.layers, kv.num_tokens, layout.kv_heads, layout.head_dim)
    keys, values = (torch.empty(shape, dtype=layout.dtype) for _ in "kv")
    kv.copy_into(keys, values, slice(0, layout.layers), 0)
    rows = torch.tensor(offsets)
    keys = keys[:, rows]
    return PlainKV(keys, values[:, rows], kv.initial, kv.local, block_means(keys, layout.q_layers))
