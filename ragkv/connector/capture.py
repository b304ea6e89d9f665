"""vLLM's worker: capture of the question's queries while its tokens run through the model after the prefix."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ragkv.connector.internals import InPlaceBatch, ModelInternals
from ragkv.engine.wire import WireReport, pack_queries
from ragkv.kv.file import StoredKV
from ragkv.kv.layout import Layout
from ragkv.span import Span
from ragkv.stitch.rank import chunk_shares


class QueryCapture(ABC):
    """Un-rotated queries of one span, seen over the batches that hold parts of it. layout: of this rank's heads."""

    def __init__(self, model: ModelInternals, layout: Layout, span: Span) -> None:
        self._model = model
        self._span = span
        self._shape = (-1, layout.q_heads, layout.head_dim)
        self._count = 0

    @contextmanager
    def of(self, batch: InPlaceBatch) -> Iterator[None]:
        """Capture from the forward that runs in this block."""
        inside = ((batch.positions >= self._span.start) & (batch.positions < self._span.end)).nonzero()[:, 0]
        positions = batch.positions[inside]

        def on_layer(layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor) -> None:
            if self._wants(layer) and len(inside):
                self._see(layer, positions, self._model.unrotate(positions, query.view(self._shape)[inside]))

        with self._model.attention_hook(on_layer):
            yield
        self._count += len(inside)

    @abstractmethod
    def _wants(self, layer: int) -> bool: ...

    @abstractmethod
    def _see(self, layer: int, positions: torch.Tensor, queries: torch.Tensor) -> None:
        """positions: [tokens] int64, in the prompt; queries: [tokens, q_heads, head_dim] float32."""

    @abstractmethod
    def report(self, report: WireReport) -> None:
        """Put what all ranks saw into the report."""


class MeanQueries(QueryCapture):
    """The mean query of each layer that the Q-Cache keeps."""

    def __init__(self, model: ModelInternals, layout: Layout, span: Span) -> None:
        super().__init__(model, layout, span)
        self._layers = layout.q_layers
        self._sum = torch.zeros(len(layout.q_layers), layout.q_heads, layout.head_dim, device=model.device)

    def _wants(self, layer: int) -> bool:
        return layer in self._layers

    def _see(self, layer: int, positions: torch.Tensor, queries: torch.Tensor) -> None:
        self._sum[layer - self._layers.start] += queries.sum(0)

    def report(self, report: WireReport) -> None:
        pack_queries(report, self._model.ranks.concatenated(self._sum, 1) / max(self._count, 1))


class Shares(QueryCapture):
    """The share of the span's attention that falls to each of some chunks, summed over heads (ragkv/stitch/rank.py)."""

    def __init__(
        self,
        model: ModelInternals,
        layout: Layout,
        span: Span,
        heads: Sequence[tuple[int, int]],
        prefix: StoredKV | None,
        chunks: Sequence[StoredKV | None],
    ) -> None:
        """heads: (layer, query head) pairs, of all ranks. Those that the model lacks count for nothing, like chunks
        without KV."""
        super().__init__(model, layout, span)
        own = range(model.ranks.rank * layout.q_heads, (model.ranks.rank + 1) * layout.q_heads)
        self._prefix = prefix
        self._chunks = chunks
        self._there = [chunk for chunk in chunks if chunk is not None]
        self._heads: dict[int, list[int]] = defaultdict(list)
        for layer, head in heads:
            if head in own:
                self._heads[layer].append(own.index(head))
        self._sum = torch.zeros(len(self._there), device=model.device)

    def _wants(self, layer: int) -> bool:
        return layer in self._heads and self._prefix is not None and bool(self._there)

    def _see(self, layer: int, positions: torch.Tensor, queries: torch.Tensor) -> None:
        assert self._prefix is not None, "see _wants"
        prefix, *chunks = (
            kv.keys_of(layer).to(self._model.device, self._model.dtype) for kv in (self._prefix, *self._there)
        )
        places = positions - len(prefix)
        shares = chunk_shares(queries.to(prefix.dtype), places, prefix, chunks, self._model.rotate)
        self._sum += shares[self._heads[layer]].sum(0) * len(queries)

    def report(self, report: WireReport) -> None:
        if self._prefix is not None:
            found = iter((self._model.ranks.sum(self._sum) / max(self._count, 1)).tolist())
            report.shares = [None if chunk is None else next(found) for chunk in self._chunks]
