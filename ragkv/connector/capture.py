"""vLLM's worker: capture of the question's queries while its tokens run through the model after the prefix."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ragkv.connector.internals import InPlaceBatch, ModelInternals
from ragkv.connector.latent import Queries
from ragkv.engine.protocol import Report
from ragkv.engine.wire import pack_queries
from ragkv.kv.layout import Layout
from ragkv.span import Span


class MeanQueries:
    """The mean un-rotated query of one span in each layer that the Q-Cache keeps, seen over the batches that hold parts
    of it. layout: of this rank's heads."""

    def __init__(self, model: ModelInternals, layout: Layout, span: Span) -> None:
        self._model = model
        self._span = span
        self._layers = layout.q_layers
        self._sum = torch.zeros(len(layout.q_layers), layout.q_heads, layout.head_dim, device=model.device)
        self._count = 0

    @contextmanager
    def of(self, batch: InPlaceBatch) -> Iterator[None]:
        """Capture from the forward that runs in this block."""
        inside = ((batch.positions >= self._span.start) & (batch.positions < self._span.end)).nonzero()[:, 0]
        positions = batch.positions[inside]

        def on_layer(layer: int, queries: Queries, _keys: torch.Tensor, _values: torch.Tensor) -> None:
            if layer in self._layers and len(inside):
                unrotated = self._model.unrotate(layer, positions, queries[inside])
                self._sum[layer - self._layers.start] += unrotated.sum(0)

        with self._model.attention_hook(on_layer):
            yield
        self._count += len(inside)

    def report(self, report: Report) -> None:
        """Put what all ranks saw into the report."""
        report.queries = pack_queries(self._model.ranks.concatenated(self._sum, 1) / max(self._count, 1))
