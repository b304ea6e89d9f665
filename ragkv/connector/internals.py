"""vLLM's worker: all vLLM internals that ragkv uses, which differ between versions and runners.

Written against vLLM 0.32: the V1 runner (CPU) and the V2 runner (GPU) both have `model` and `attn_groups`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Protocol, cast

import torch
from vllm.config import ParallelConfig, VllmConfig
from vllm.distributed import get_tp_group
from vllm.forward_context import set_forward_context
from vllm.model_executor.models.llama4 import Llama4Attention
from vllm.v1.attention.backend import AttentionMetadataBuilder, CommonAttentionMetadata
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, SlidingWindowSpec

from ragkv.connector.common_context import CommonContext
from ragkv.connector.latent import (
    LatentQueries,
    Queries,
    Unrotated,
    is_latent,
    refuse_packed,
    seen_by_heads,
    write_latents,
)
from ragkv.connector.ranks import Ranks
from ragkv.connector.rotation import Rotary, replaced, rotate, unrotate, watched
from ragkv.errors import Unsupported
from ragkv.kv.pieces import sent
from ragkv.span import Span

MOST_SPANS = 1024
"""Spans that run in one forward, if its tokens do: to launch one takes an accelerator's host longer than it runs."""


class _StopForward(Exception):
    """Ends a forward at a layer."""


@dataclass(frozen=True, slots=True)
class InPlaceBatch:
    """Spans of one request as a batch of 'sequences' that share its block table."""

    spans: tuple[Span, ...]
    positions: torch.Tensor  # [tokens] int64, in the prompt
    slots: torch.Tensor  # [tokens] int64, in the paged cache


@dataclass(frozen=True, slots=True)
class PrefixKV:
    """Keys and values of a prefix as they enter attention, [layers, tokens, kv_heads, head_dim] each, of one rank.
    Values of a latent layer have a head_dim of 0."""

    keys: torch.Tensor
    values: torch.Tensor

    @property
    def num_tokens(self) -> int:
        return self.keys.shape[1]


class Observer(Protocol):
    """Sees a forward: layer by layer what is rotated, and by what, then what enters attention. Tensors are [tokens,
    heads, head_dim] of this rank's heads, and are overwritten afterwards."""

    def rotating(self, layer: int, rotary: Rotary, queries: Queries, keys: torch.Tensor) -> None: ...

    def attending(self, layer: int, queries: Queries, keys: torch.Tensor, values: torch.Tensor) -> None: ...


class ModelInternals:
    """The loaded model of one vLLM worker: its attention layers, its rotary embedding, its paged cache. Of several
    ranks each has its part of every layer, and `forward` runs on all of them at once."""

    def __init__(self, runner: Any) -> None:
        # A configuration for forwards whose sequences are spans, not requests: backends size their buffers by it.
        self._config: VllmConfig = copy(runner.vllm_config)
        self._config.scheduler_config = copy(self._config.scheduler_config)
        self._config.scheduler_config.max_num_seqs = max(self._config.scheduler_config.max_num_seqs, MOST_SPANS)
        _refuse_unsupported(self._config)
        group = get_tp_group()
        self.ranks = Ranks(group.rank_in_group, group.world_size)
        self._model: torch.nn.Module = runner.model
        self.device: torch.device = runner.device
        self.dtype: torch.dtype = self._config.model_config.dtype
        groups = [group for of_cache in runner.attn_groups for group in of_cache]
        if len(runner.attn_groups) != 1:
            raise Unsupported("the model keeps more than one kind of KV cache: its chunks cannot be stitched")
        # Builders for the inner pass alone: some backends keep the outer step's plan in theirs.
        self._builders: list[tuple[AttentionMetadataBuilder[Any], list[str]]] = [
            (type(builder)(builder.kv_cache_spec, group.layer_names, self._config, self.device), group.layer_names)
            for group, builder in ((group, group.metadata_builders[0]) for group in groups)
        ]
        self._names = sorted(
            (name for group in groups for name in group.layer_names),
            key=lambda name: next(int(part) for part in name.split(".") if part.isdigit()),  # the layer's number
        )
        self._scratch: torch.Tensor | None = None
        self.block_size: int = groups[0].kv_cache_spec.block_size
        self.max_tokens: int = self._config.scheduler_config.max_num_batched_tokens
        self.max_sequences: int = self._config.scheduler_config.max_num_seqs
        self._common_context = CommonContext(self.block_size, self.device)
        for layer in filter(is_latent, self.layers):
            refuse_packed(layer)
        # Llama 4 norms queries and keys behind their rotation: without weights, so it comes to the same before.
        self._norms = {
            module.attn.layer_name: module.qk_norm
            for module in self._model.modules()
            if isinstance(module, Llama4Attention)
        }
        self._rotary_by_layer = self._find_rotary_by_layer()

    @property
    def layers(self) -> list[Any]:
        """vLLM's Attention modules, first to last."""
        context = self._config.compilation_config.static_forward_context
        return [context[name] for name in self._names]

    def window_of(self, layer: int) -> int | None:
        """Tokens that a position of this layer attends to at most, itself the last of them; None for all."""
        attention = self.layers[layer]
        window: int | None = getattr(attention, "attention_chunk_size", None) or attention.sliding_window
        return window

    def rotate(self, layers: Sequence[int], positions: torch.Tensor, keys: torch.Tensor) -> None:
        """Turn un-rotated keys [layers, tokens, kv_heads, head_dim] of these consecutive layers, in place, to their
        positions [tokens], by the model's own kernels."""
        start = layers[0]
        for rotary, alike in groupby(layers, key=lambda layer: self._rotary_by_layer[layer]):
            of_group = list(alike)
            rotate(rotary, positions, keys[of_group[0] - start : of_group[-1] + 1 - start])

    def unrotate(self, layer: int, positions: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        """The inverse of `rotate` for queries [tokens, heads, head_dim] of a layer, in float32."""
        return unrotate(self._rotary_by_layer[layer], positions, queries)

    def write(self, layer: Any, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Put rotated keys and values [tokens, kv_heads, head_dim] of one layer into the paged cache.

        Through the backend's own kernel: backends pack the cache in layouts of their own.
        """
        if is_latent(layer):
            write_latents(layer, keys, slots)
        else:
            layer.impl.do_kv_cache_update(layer, keys, values, layer.kv_cache, slots)

    def sent(self, part: torch.Tensor) -> torch.Tensor:
        """A copy of a host's tensor on the device, for which nothing waits."""
        return sent(part, self.device)

    def batch(self, spans: Sequence[Span], block_ids: torch.Tensor) -> InPlaceBatch:
        """A batch of these spans of a request with this block table [blocks] int64."""
        positions = self.sent(torch.cat([torch.arange(s.start, s.end) for s in spans]))  # one copy, not one a span
        slots = block_ids[positions // self.block_size] * self.block_size + positions % self.block_size
        return InPlaceBatch(tuple(spans), positions, slots)

    def forward(self, token_ids: Sequence[int], batch: InPlaceBatch, block_ids: torch.Tensor) -> None:
        """Run the plain model over a batch of spans of one request, writing their KV in place.

        token_ids: those of the batch; block_ids: [blocks] int64, the request's block table, or
        [spans, blocks], that of each.

        Each span is a sequence of its own on the request's block table: its query is the span, its context everything
        up to its end. Every layer writes all spans' keys and values before any span attends, so later spans see the
        fresh KV of earlier ones: an exact selective prefill on vLLM's own kernels.
        """
        metadata, slots = {}, {}
        for builder, names in self._builders:
            built = builder.build(0, self._common(builder, batch, block_ids))
            for name in names:
                metadata[name], slots[name] = built, batch.slots
        is_one_request = block_ids.ndim == 1
        with (
            torch.inference_mode(),
            self._common_context.read_once(batch.spans if is_one_request else ()),
            set_forward_context(
                metadata, self._config, num_tokens=len(batch.positions), slot_mapping=slots, skip_compiled=True
            ),
        ):
            self._model(input_ids=self.sent(torch.tensor(token_ids, dtype=torch.int32)), positions=batch.positions)

    def prefill_apart(self, rows: Sequence[Sequence[int]], prefix: PrefixKV, observer: Observer) -> None:
        """Run rows of token ids through the model, each behind the prefix and unaware of the others, as far as the
        attention of the last layer.

        Nothing of the paged cache is used. A layer's KV is needed while that layer runs alone, so one scratch, of the
        shape of a layer's cache, serves them all; what is to be kept, the observer takes.
        """
        spans = [Span(prefix.num_tokens, prefix.num_tokens + len(row)) for row in rows]
        blocks = -(-max(span.end for span in spans) // self.block_size)
        table = torch.arange(len(rows) * blocks, device=self.device).view(len(rows), blocks)
        starts = range(0, table.numel() * self.block_size, blocks * self.block_size)
        positions = torch.cat([torch.arange(span.start, span.end) for span in spans])
        slots = torch.cat(
            [torch.arange(start + s.start, start + s.end) for start, s in zip(starts, spans, strict=True)]
        )
        prefix_slots = self.sent(torch.cat([torch.arange(start, start + prefix.num_tokens) for start in starts]))
        batch = InPlaceBatch(tuple(spans), self.sent(positions), self.sent(slots))
        token_ids = [token for row in rows for token in row]
        layers = self.layers
        last = len(layers) - 1
        layer_number, rotary, unrotated = 0, cast("Rotary", None), cast("Unrotated | None", None)

        def on_rotation(embedding: Rotary, query: torch.Tensor, key: torch.Tensor) -> None:
            nonlocal rotary, unrotated
            rotary = embedding
            if is_latent(layers[layer_number]):  # the other parts come with attention
                unrotated = Unrotated(query.clone(), key.clone())
            else:
                parts = _by_heads(layers[layer_number], query, key)
                if norm := self._norms.get(self._names[layer_number]):
                    parts = tuple(norm(part.float()).to(part.dtype) for part in parts)
                observer.rotating(layer_number, embedding, *parts)

        def on_attention(layer: int, queries: Queries, keys: torch.Tensor, values: torch.Tensor) -> None:
            nonlocal layer_number, rotary, unrotated
            if unrotated is not None:
                observer.rotating(layer, rotary, *unrotated.within(cast("LatentQueries", queries), keys))
            elif rotary is None:
                observer.rotating(layer, None, queries, keys)
            layer_number, rotary, unrotated = layer + 1, None, None
            observer.attending(layer, queries, keys, values)
            if prefix.num_tokens and layer < last:
                prefix_keys, prefix_values = (
                    part[layer].repeat(len(rows), 1, 1) for part in (prefix.keys, prefix.values)
                )
                self.write(layers[layer], prefix_keys, prefix_values, prefix_slots)

        with (
            self._cached_in_scratch(table.numel()),
            watched(self._model, on_rotation),
            self.attention_hook(on_attention, stop_at=last),
        ):
            self.forward(token_ids, batch, table)

    def _find_rotary_by_layer(self) -> list[Rotary]:
        """Find what each layer rotates by: models decide it in their code, so one token is run.

        Raises Unsupported for layers that rotate more than once.
        """
        seen: list[list[Rotary]] = [[] for _ in self._names]

        class Noting:
            def rotating(self, layer: int, rotary: Rotary, queries: Queries, keys: torch.Tensor) -> None:
                seen[layer].append(rotary)

            def attending(self, layer: int, queries: Queries, keys: torch.Tensor, values: torch.Tensor) -> None:
                pass

        nothing = torch.empty(len(self._names), 0)
        self.prefill_apart([[0]], PrefixKV(nothing, nothing), Noting())
        if any(len(embeddings) != 1 for embeddings in seen):
            raise Unsupported("the model rotates the keys of a layer more than once: its chunks cannot be stitched")
        return [embedding for [embedding] in seen]

    @contextmanager
    def _cached_in_scratch(self, num_blocks: int) -> Iterator[None]:
        """Have every layer keep its KV in one scratch of so many blocks while the block runs."""
        layers = self.layers
        caches = [layer.kv_cache for layer in layers]
        axis, parts = self._block_axis(caches[0])
        shape = list(caches[0].shape)
        shape[axis] = num_blocks * parts
        if self._scratch is None or self._scratch.shape[axis] < shape[axis]:
            order = sorted(range(len(shape)), key=caches[0].stride, reverse=True)  # its dimensions in memory
            inverse = [order.index(dim) for dim in range(len(shape))]
            self._scratch = caches[0].new_zeros([shape[dim] for dim in order]).permute(inverse)
        for layer in layers:
            layer.kv_cache = self._scratch
        try:
            yield
        finally:
            for layer, cache in zip(layers, caches, strict=True):
                layer.kv_cache = cache

    def _block_axis(self, cache: torch.Tensor) -> tuple[int, int]:
        """The axis along which a layer's cache counts blocks, the first or the second, and how many of the kernel's
        blocks are one of the cache manager's."""
        num_blocks = self._config.cache_config.num_gpu_blocks
        axis = next(axis for axis, size in enumerate(cache.shape) if size >= num_blocks and size % num_blocks == 0)
        return axis, cache.shape[axis] // num_blocks

    @contextmanager
    def with_room_for(self, num_tokens: int, block_ids: Sequence[int], last_layer: int) -> Iterator[torch.Tensor]:
        """A block table [blocks] int64 for so many tokens of a request: its own `block_ids`, and where these are too
        few, blocks of others, whose content in the layers up to `last_layer` is put back when the block ends.

        While a connector fills a request's blocks, vLLM has given it none for the tokens behind them. Shorter than
        asked for if the whole cache is too small.
        """
        own = torch.tensor(block_ids)
        lacking = max(-(-num_tokens // self.block_size) - len(own), 0)
        among = torch.arange(min(self._config.cache_config.num_gpu_blocks, len(own) + lacking))
        lent = among[~torch.isin(among, own)][:lacking]
        caches = [layer.kv_cache for layer in self.layers[: last_layer + 1]]
        axis, parts = self._block_axis(caches[0])
        rows = self.sent((lent[:, None] * parts + torch.arange(parts)).flatten())
        contents = [cache.index_select(axis, rows) for cache in caches]
        try:
            yield self.sent(torch.cat([own, lent]))
        finally:
            for cache, content in zip(caches, contents, strict=True):
                cache.index_copy_(axis, rows, content)

    def _common(
        self, builder: AttentionMetadataBuilder[Any], batch: InPlaceBatch, block_ids: torch.Tensor
    ) -> CommonAttentionMetadata:
        lengths = torch.tensor([span.num_tokens for span in batch.spans], dtype=torch.int32)
        starts = torch.zeros(len(batch.spans) + 1, dtype=torch.int32)
        starts[1:] = lengths.cumsum(0)
        ends = torch.tensor([span.end for span in batch.spans], dtype=torch.int32)
        # A block table in the kernel's blocks, which may be a fraction of the cache manager's.
        parts = self.block_size // builder.kv_cache_spec.block_size
        table = (block_ids[..., None] * parts + torch.arange(parts, device=block_ids.device)).flatten(-2)
        return CommonAttentionMetadata(
            query_start_loc=self.sent(starts),
            query_start_loc_cpu=starts,
            seq_lens=self.sent(ends),
            num_reqs=len(batch.spans),
            num_actual_tokens=len(batch.positions),
            max_query_len=int(lengths.max()),
            max_seq_len=int(ends.max()),
            block_table_tensor=table.to(torch.int32).expand(len(batch.spans), -1).contiguous(),
            slot_mapping=batch.slots,
            causal=True,
            positions=batch.positions,
            is_prefilling=torch.ones(len(batch.spans), dtype=torch.bool),
            seq_lens_cpu_upper_bound=ends,
        )

    @contextmanager
    def attention_hook(self, on_layer: Any, stop_at: int | None = None) -> Iterator[None]:
        """Call `on_layer(layer, queries, keys, values)` with what enters each attention layer, rotated, while the block
        runs one forward.

        queries: [tokens, q_heads, head_dim], keys and values: [tokens, kv_heads, head_dim], in the model's dtype, of
        this rank's heads. stop_at: the layer at which the block ends, once it was seen. What `on_layer` raises is
        raised when the forward has ended: other ranks are in it.
        """
        failed: list[Exception] = []
        layers = self.layers

        def see(index: int, inputs: tuple[Any, ...]) -> None:
            layer = layers[index]
            by_heads = seen_by_heads if is_latent(layer) else _by_heads
            try:
                if not failed:
                    on_layer(index, *by_heads(layer, *inputs[:3]))
            except Exception as error:
                failed.append(error)
            if index == stop_at:
                raise _StopForward

        def seen_by(index: int, forward: Any) -> Any:
            def see_and_go_on(*inputs: Any, **named: Any) -> Any:
                see(index, inputs)
                return forward(*inputs, **named)

            return see_and_go_on

        # Not hooks: Transformers' code calls `forward` itself, past them.
        with ExitStack() as until_end:
            for index, layer in enumerate(layers):
                until_end.enter_context(replaced(layer, "forward", seen_by(index, layer.forward)))
            with suppress(_StopForward):
                yield
        with self.ranks.together():
            if failed:
                raise failed[0]


def _by_heads(layer: Any, query: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Queries, and keys and values, of a layer: [tokens, heads * head_dim] become [tokens, heads, head_dim]."""
    queries = query.view(-1, layer.num_heads, layer.head_size)
    return queries, *(part.view(len(queries), layer.num_kv_heads, -1) for part in others)


def _refuse_unsupported(config: VllmConfig) -> None:
    """Check vLLM's configuration. Raises Unsupported for ways of running a model that would put KV in wrong places or
    let workers disagree."""
    refuse_parallel(config.parallel_config)
    if "fp8" in config.cache_config.cache_dtype:
        raise Unsupported(
            "stitching does not work with an fp8 KV cache yet: with one, recomputing everything did not give full "
            "prefill's result (docs/DECISIONS.md). "
            "Quantise KV files instead (RAGKV_KV_FORMAT)"
        )
    speculative = config.speculative_config
    if speculative is not None and speculative.method != "ngram":
        raise Unsupported(
            f"stitching does not work with speculative decoding by {speculative.method}, whose draft layers have KV of "
            "their own: use ngram, which takes its drafts from the prompt"
        )


def keep_seeds(runner: Any) -> None:
    """Have vLLM's V1 runner leave a seeded request's generator on a CPU as it was in a step that does not end its
    prompt: the token drawn there is thrown away. By itself it turns the generator back by an offset, which only those
    on GPUs have, and the engine ends."""
    if runner.device.type != "cpu" or not hasattr(runner, "_bookkeeping_sync"):
        return
    sample, note = runner._sample, runner._bookkeeping_sync  # noqa: SLF001 - it has no other place for it

    def sample_and_turn_back(*args: Any, **named: Any) -> Any:
        is_thrown_away = runner.discard_request_mask.np
        generators = [drawn for row, drawn in runner.input_batch.generators.items() if is_thrown_away[row]]
        states = [generator.get_state() for generator in generators]
        sampled = sample(*args, **named)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        return sampled

    def note_only(*args: Any, **named: Any) -> Any:
        with replaced(runner.input_batch, "generators", {}):
            return note(*args, **named)

    runner._sample, runner._bookkeeping_sync = sample_and_turn_back, note_only  # noqa: SLF001 - as above


def keeping_all_tokens(specs: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's kinds of KV by layer, with blocks for all tokens. vLLM itself does so where only some of the layers have a
    sliding window, or attend within chunks of positions."""
    names = {field.name for field in fields(FullAttentionSpec)}
    if not all(isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec) for spec in specs.values()):
        return dict(specs)
    return {
        layer: FullAttentionSpec(**{name: getattr(spec, name) for name in names if hasattr(spec, name)})
        for layer, spec in specs.items()
    }


def refuse_parallel(parallel: ParallelConfig) -> None:
    """Check vLLM's kinds of parallelism. Raises Unsupported for other ways of using several devices than tensor
    parallelism."""
    whole = "each rank would hold the KV of some of a prompt's tokens alone, and a chunk's KV is placed as a whole"
    reasons = {
        "pipeline_parallel_size": "each rank would hold some of the layers alone, and recompute in place runs through all of them",
        "prefill_context_parallel_size": whole,
        "decode_context_parallel_size": whole,
        "data_parallel_size": "each engine stitches for itself: run several (docs/SCALING.md)",
    }
    for name, reason in reasons.items():
        if getattr(parallel, name, 1) > 1:
            raise Unsupported(
                f"{name} must be 1: {reason}. For a model that does not fit on one GPU, set RAGKV_TENSOR_PARALLEL_SIZE"
            )
