"""vLLM's worker: capture of the question's own query vectors while its tokens run through the model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ragkv.connector.internals import InPlaceBatch, ModelInternals
from ragkv.kv.layout import Layout
from ragkv.span import Span


class QueryCapture:
    """Sums the un-rotated queries of one span over the batches that hold parts of it."""

    def __init__(self, model: ModelInternals, layout: Layout, span: Span) -> None:
        self._model = model
        self._layers = layout.q_layers
        self._span = span
        self._shape = (-1, layout.q_heads, layout.head_dim)
        self._sum = torch.zeros(len(layout.q_layers), layout.q_heads, layout.head_dim)
        self._count = 0

    @contextmanager
    def of(self, batch: InPlaceBatch) -> Iterator[None]:
        """Capture from the forward that runs in this block."""
        inside = (batch.positions >= self._span.start) & (batch.positions < self._span.end)

        def on_layer(layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor) -> None:
            if layer in self._layers:
                queries = query.view(self._shape)[inside]
                unrotated = self._model.unrotate(batch.positions[inside], queries)
                self._sum[layer - self._layers.start] += unrotated.sum(0).cpu()

        with self._model.attention_hook(on_layer):
            yield
        self._count += int(inside.sum())

    def mean(self) -> torch.Tensor:
        """[q_layers, q_heads, head_dim] float32."""
        return self._sum / max(self._count, 1)
