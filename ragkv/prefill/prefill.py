"""Runs chunks through the language model once, after the shared prefix, and extracts their KV and Q-Cache.

With a writer, its adapter is merged into the weights that chunks run through, and never takes part while the prefix
does.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModel, AutoModelForCausalLM, DynamicCache, PreTrainedModel

from ragkv.kv.file import PlainKV, block_means
from ragkv.kv.layout import Layout, computed_in
from ragkv.prefill.capture import Capture, Captured, padded

if TYPE_CHECKING:
    from ragkv.prefill.adapter import Adapter

QCACHE_VIEW = 16  # tokens at a chunk's start and end whose mean query is its initial and its local vector


@dataclass(frozen=True, slots=True)
class _Plain:
    """Results of the plain model from before the writer was merged into its weights: the prefix's KV, and the cache
    that chunks run behind."""

    prefix_ids: tuple[int, ...]
    prefix: PlainKV
    cache: DynamicCache


class Prefiller:
    """The served model under Transformers, for prefill alone."""

    def __init__(self, model: PreTrainedModel, layout: Layout, writer: "Adapter | None" = None) -> None:
        """writer: an adapter of `model`, a causal language model then."""
        self.layout = layout
        self._model = model
        self._writer = writer
        self._plain: _Plain | None = None
        self._capture = Capture(model, layout.q_layers)

    @classmethod
    def load(cls, folder: Path, layout: Layout, writer: Path | None = None) -> "Prefiller":
        """Load the model, and its writer from a folder, on the GPU if there is one.
        Takes seconds: keep one a process."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = AutoModel if writer is None else AutoModelForCausalLM
        dtype = computed_in(layout.dtype)
        model = kind.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(device).eval()
        if writer is None:
            return cls(model, layout)
        from ragkv.prefill.adapter import Adapter  # noqa: PLC0415 - seconds to import, needed with a writer alone

        return cls(model, layout, Adapter.load(model, writer))

    @torch.inference_mode()
    def prefill(self, prefix_ids: Sequence[int], chunks: Sequence[Sequence[int]]) -> list[PlainKV]:
        """KV of the prefix, then of each chunk behind it, from one forward, on the model's device: a GPU quantises it
        far sooner than the host.

        Chunks are padded on the right: under causal attention nothing before the padding can see it. Pass chunks of
        similar length to waste little. Raises Unsupported for a model whose attention cannot be captured.
        """
        if self._writer is not None:
            return self._written(self._writer, prefix_ids, chunks)
        skip = len(prefix_ids)
        with self._capture.recorded() as captured:
            self._model(
                padded([[*prefix_ids, *chunk] for chunk in chunks or [[]]], self._model.device), use_cache=False
            )
        cut = [self._cut(captured, 0, 0, skip)]
        return cut + [self._cut(captured, row, skip, skip + len(chunk)) for row, chunk in enumerate(chunks)]

    def _written(self, writer: "Adapter", prefix_ids: Sequence[int], chunks: Sequence[Sequence[int]]) -> list[PlainKV]:
        """`prefill` with a writer: its weights run the chunks over a cache of the plain model's prefix."""
        if self._plain is None:
            cache = DynamicCache()
            with writer.disabled(), self._capture.recorded() as captured:
                self._model.base_model(padded([prefix_ids], self._model.device), past_key_values=cache)
            self._plain = _Plain(tuple(prefix_ids), self._cut(captured, 0, 0, len(prefix_ids)), cache)
            writer.merge()  # several times faster than beside the weights
        plain = self._plain
        assert plain.prefix_ids == tuple(prefix_ids), "the plain weights are gone: one prefix a prefiller"
        if not chunks:
            return [plain.prefix]
        cache = copy.deepcopy(plain.cache)
        cache.batch_repeat_interleave(len(chunks))
        with self._capture.recorded() as captured:
            self._model.base_model(padded(chunks, self._model.device), past_key_values=cache)
        return [plain.prefix, *(self._cut(captured, row, 0, len(chunk)) for row, chunk in enumerate(chunks))]

    def _cut(self, captured: Captured, row: int, start: int, end: int) -> PlainKV:
        """One sequence's tokens [start, end) out of a batch."""
        keys = _stack(captured.keys, row, start, end).to(self.layout.dtype)
        queries = _stack(captured.queries, row, start, end).float()
        return PlainKV(
            keys=keys,
            values=_stack(captured.values, row, start, end).to(self.layout.dtype),
            initial=queries[:, :QCACHE_VIEW].mean(1),
            local=queries[:, -QCACHE_VIEW:].mean(1),
            mean_keys=block_means(keys, self.layout.q_layers),
        )


def _stack(layers: list[torch.Tensor], row: int, start: int, end: int) -> torch.Tensor:
    """[layers, tokens, heads, head_dim] of one sequence."""
    return torch.stack([layer[row, :, start:end] for layer in layers]).transpose(1, 2).contiguous()
