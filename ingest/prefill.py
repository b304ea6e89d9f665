"""Chunks run through the language model once, behind the shared prefix; their KV and Q-Cache are taken out."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModel, PreTrainedModel

from ingest.capture import Capture, Captured
from ragkv.kv.file import QCACHE_BLOCK, ChunkKV
from ragkv.kv.layout import Layout

QCACHE_VIEW = 16  # tokens at a chunk's start and end whose mean query is its initial and its local vector


class Prefiller:
    """The served model under Transformers, for prefill alone."""

    def __init__(self, model: PreTrainedModel, layout: Layout) -> None:
        self.layout = layout
        self._model = model
        self._capture = Capture(model, layout.q_layers)

    @classmethod
    def load(cls, folder: Path, layout: Layout) -> "Prefiller":
        """Load the model, on the GPU if there is one. Takes seconds: keep one a process."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = AutoModel.from_pretrained(folder, dtype=layout.dtype, attn_implementation="sdpa").to(device).eval()
        return cls(model, layout)

    @torch.inference_mode()
    def prefill(self, prefix_ids: Sequence[int], chunks: Sequence[Sequence[int]]) -> list[ChunkKV]:
        """KV of the prefix, then of each chunk behind it, from one forward.

        Chunks are padded on the right: under causal attention nothing before the padding can see it. Pass chunks of
        similar length to waste little. Raises Unsupported for a model whose attention cannot be captured.
        """
        skip, longest = len(prefix_ids), max((len(chunk) for chunk in chunks), default=0)
        ids = torch.zeros(max(len(chunks), 1), skip + longest, dtype=torch.long)
        for row, chunk in zip(ids, chunks or [[]], strict=True):
            row[: skip + len(chunk)] = torch.tensor([*prefix_ids, *chunk])
        captured = self._forward(ids.to(self._model.device))
        cut = [self._cut(captured, 0, 0, skip)]
        return cut + [self._cut(captured, row, skip, skip + len(chunk)) for row, chunk in enumerate(chunks)]

    def _forward(self, ids: torch.Tensor) -> Captured:
        with self._capture.recorded() as captured:
            self._model(ids, use_cache=False)
        return captured

    def _cut(self, captured: Captured, row: int, start: int, end: int) -> ChunkKV:
        """One sequence's tokens [start, end) out of a batch."""
        keys = _stack(captured.keys, row, start, end).to(self.layout.dtype)
        queries = _stack(captured.queries, row, start, end).float()
        chosen = keys[self.layout.q_layers.start : self.layout.q_layers.stop]
        return ChunkKV(
            keys=keys,
            values=_stack(captured.values, row, start, end).to(self.layout.dtype),
            initial=queries[:, :QCACHE_VIEW].mean(1),
            local=queries[:, -QCACHE_VIEW:].mean(1),
            mean_keys=torch.stack([block.float().mean(1) for block in torch.split(chosen, QCACHE_BLOCK, dim=1)]),
        )


def _stack(layers: list[torch.Tensor], row: int, start: int, end: int) -> torch.Tensor:
    """[layers, tokens, heads, head_dim] of one sequence, on the host."""
    return torch.stack([layer[row, :, start:end] for layer in layers]).transpose(1, 2).contiguous().cpu()
