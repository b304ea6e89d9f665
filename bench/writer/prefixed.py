"""The served model under Transformers, with the KV of the prefix that every text runs behind."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel
from transformers.utils import logging

from bench.writer.capture import ROTATE, Capture, modules_with_rotation
from ragkv.kv.layout import computed_in

KV = list[tuple[torch.Tensor, torch.Tensor]]
"""Rotated keys and values a layer, [1, kv_heads, tokens, head_dim] each."""


def load_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The causal language model in a folder, to read with: on the GPU if there is one, in evaluation mode, and in the
    dtype that the machine computes `dtype` in."""
    logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=computed_in(dtype)).to(device).eval()


class PrefixedModel:
    """A causal language model whose forwards are captured, and the KV of the prefix."""

    def __init__(self, model: PreTrainedModel, prefix_ids: Sequence[int], query_layers: Sequence[int] = ()) -> None:
        """query_layers: those whose queries are captured as well as keys and values."""
        self._model = model
        self._trunk = model.base_model  # without the head: KV needs no logits
        self._capture = Capture(model, query_layers)
        self._rotation = getattr(modules_with_rotation(model)[0], ROTATE)
        self._positions = next(m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding"))
        self._device = model.device
        self._prefix = self._after(DynamicCache(), prefix_ids)
        self.num_prefix = len(prefix_ids)

    @torch.no_grad()
    def _after(self, cache: DynamicCache, ids: Sequence[int]) -> KV:
        """KV of what the cache holds and of tokens behind it."""
        self._trunk(self._ids(ids), past_key_values=cache, use_cache=True)
        return [(layer.keys, layer.values) for layer in cache.layers]

    def _rotated(self, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Heads [1, heads, tokens, head_dim] rotated to their positions by the model's own functions."""
        cos, sin = self._positions(heads, positions[None])
        size = cos.shape[-1]
        _, rotated = self._rotation(heads[..., :size], heads[..., :size], cos, sin)
        return torch.cat((rotated, heads[..., size:]), -1)

    def _ids(self, ids: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(ids)], device=self._device)


def cache_of(kv: KV) -> DynamicCache:
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(kv):
        cache.update(keys, values, layer)
    return cache


def repeated(kv: KV, rows: int) -> KV:
    return [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in kv]
