"""KV of chunks some of whose tokens are left out, for the question at hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from bench.fidelity.kit import Kit, Variant, shortened
from ingest.compress.compression import Compression
from ingest.compress.methods import CUE, kept_tokens
from ingest.compress.view import Watcher
from ingest.writer.reading import load_model
from ragkv.batched import batched
from ragkv.chunk import Chunk
from ragkv.kv.key import KeyMaker
from ragkv.parts import Parts

_AT_ONCE = 8
"""Chunks of one batch: their queries and keys in all layers are in memory at a time."""


def compressed_keys(keys: KeyMaker, compression: Compression) -> KeyMaker:
    """Names of KV under a compression. Chunks of which the same token ids stay share a name: good enough for one
    question."""
    return replace(keys, writer=f"{keys.writer} {compression.name}")


def watcher_of(parts: Parts) -> Watcher:
    """The served model, without a writer, with the cue as its prompts would hold a question."""
    model = load_model(parts.model_folder, parts.layout.dtype).requires_grad_(False)
    return Watcher(model, parts.prompts.prefix_ids, parts.prompts.question_ids(CUE))


class Compressor:
    """Leaves tokens out of the KV that `whole` names. Which ones stay, the plain model says, whoever wrote it."""

    def __init__(
        self, kit: Kit, whole: KeyMaker, variants: Mapping[Compression, Variant], load: Callable[[], Watcher]
    ) -> None:
        """variants: filled with what is left of each chunk. load: called when there is something to compress."""
        self.variants = variants
        self._kit = kit
        self._whole = whole
        self._load = load

    @cached_property
    def _watcher(self) -> Watcher:
        return self._load()

    def compress(self, chunks: Sequence[Chunk]) -> None:
        """Keep KV of what stays of each chunk under each compression. The chunks' own KV is there."""
        for variant in self.variants.values():
            variant.shortened.clear()
        by_length = sorted(chunks, key=lambda chunk: chunk.num_tokens) if self.variants else []
        for batch in batched(by_length, _AT_ONCE):
            views = self._watcher.views([chunk.token_ids for chunk in batch])
            for chunk, view in zip(batch, views, strict=True):
                for compression, variant in self.variants.items():
                    self._keep(chunk, kept_tokens(compression, view), variant)

    def _keep(self, chunk: Chunk, offsets: Sequence[int], variant: Variant) -> None:
        kept = variant.shortened[chunk.id] = shortened(chunk, offsets)
        self._kit.keep_rows(self._whole.chunk(chunk.token_ids), offsets, variant.keys.chunk(kept.token_ids))
