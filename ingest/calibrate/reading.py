"""Readings in plain Transformers that match the engine's: queries of a question, and answers after recompute in
place."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from ingest.capture import Capture, padded
from ingest.writer.reading import KV, Reader, Tail, Writing, cache_of, load_model
from ingest.writer.stand_ins import BARE
from ragkv.parts import Parts
from ragkv.span import Span
from ragkv.stitch.rank import chunk_shares


class NoWriter:
    """The plain model as a writer."""

    contexts = BARE

    @contextmanager
    def disabled(self) -> Iterator[None]:
        yield


class SelectiveReader(Reader):
    """Readings of stitched contexts, some of whose tokens are recomputed by the plain model."""

    def __init__(self, model: PreTrainedModel, writing: Writing, prefix_ids: Sequence[int]) -> None:
        super().__init__(model, writing, prefix_ids)
        self._prefix_ids = tuple(prefix_ids)
        self._capture = Capture(model, range(model.config.num_hidden_layers))

    def plain_writing(self) -> AbstractContextManager[Any]:
        """Write with the plain model in the block."""
        return self._writing.disabled()

    @torch.no_grad()
    def queries(self, context: KV, question_ids: Sequence[int]) -> list[torch.Tensor]:
        """Rotated queries of a question behind a context, a tensor a layer: [tokens, q_heads, head_dim]."""
        start = num_tokens(context)
        positions = torch.arange(start, start + len(question_ids), device=self._device)
        with self._writing.disabled(), self._capture.recorded() as captured:
            self._trunk(self._ids(question_ids), past_key_values=cache_of(context), use_cache=True)
        return [self._rotated(queries, positions)[0].transpose(0, 1) for queries in captured.queries]

    @torch.no_grad()
    def keys(self, chunks: Sequence[Sequence[int]]) -> list[list[torch.Tensor]]:
        """Un-rotated keys of each chunk as its writer makes them, a tensor a layer: [tokens, kv_heads, head_dim]."""
        written = self._written(padded(chunks, self._device), None)
        return [[layer[row, :, : len(ids)].transpose(0, 1) for layer in written.keys] for row, ids in enumerate(chunks)]

    @torch.no_grad()
    def shares(
        self, question_ids: Sequence[int], text: Span, chunks: Sequence[Sequence[torch.Tensor]], layers: Sequence[int]
    ) -> torch.Tensor:
        """Attention to each chunk's `keys` of a question that runs behind the prefix alone, its part `text`: [layers,
        q_heads, chunks] float32, of these layers (ragkv/stitch/rank.py)."""
        with self._writing.disabled():
            with self._capture.recorded() as prefix:
                self._trunk(self._ids(self._prefix_ids), use_cache=True)
            with self._capture.recorded() as asked:
                self._trunk(self._ids(question_ids), past_key_values=cache_of(self._prefix), use_cache=True)
        places = torch.arange(text.start, text.end, device=self._device)
        return torch.stack(
            [
                chunk_shares(
                    asked.queries[layer][0, :, text.start : text.end].transpose(0, 1),
                    places,
                    prefix.keys[layer][0].transpose(0, 1),
                    [keys[layer] for keys in chunks],
                    lambda positions, heads: self._rotated(heads.transpose(0, 1)[None], positions)[0].transpose(0, 1),
                )
                for layer in layers
            ]
        ).cpu()

    @torch.no_grad()
    def recomputed(self, context: KV, positions: Sequence[int], ids: Sequence[int], tail: Tail) -> torch.Tensor:
        """Log probabilities of the tail's answer over the context, of which the tokens `ids` at `positions` (ascending)
        run again.

        [answer tokens, vocabulary] float32. In every layer they are written before anything attends, as in the engine
        (ModelInternals.forward).
        """
        tail_ids = (*tail.question_ids, *tail.answer_ids)
        end = num_tokens(context) + len(tail_ids)
        at = torch.tensor([*positions, *range(end - len(tail_ids), end)], device=self._device)
        mask = torch.arange(end, device=self._device) <= at[:, None]
        with self._writing.disabled():
            out = self._model(
                self._ids((*ids, *tail_ids)),
                position_ids=at[None],
                attention_mask=mask[None, None],
                past_key_values=_InPlace(context, at[: len(positions)]),
                use_cache=True,
                logits_to_keep=len(tail.answer_ids) + 1,
            )
        logprobs: torch.Tensor = out.logits[0, :-1].float().log_softmax(-1)
        return logprobs


def calibration_reader(parts: Parts, dtype: torch.dtype = torch.float32) -> SelectiveReader:
    """The served model, with the writer in use if there is one."""
    model = load_model(parts.model_folder, dtype)
    writing: Writing = NoWriter()
    if parts.writer_fingerprint:
        from ingest.writer.adapter import Adapter  # noqa: PLC0415 - seconds to import, needed with a writer alone

        writing = Adapter.load(model, parts.settings.writer_dir)
    model.requires_grad_(False)
    return SelectiveReader(model, writing, parts.prompts.prefix_ids)


def num_tokens(context: KV) -> int:
    return context[0][0].shape[2]


class _InPlace(DynamicCache):  # type: ignore[misc]  # Transformers' classes are not typed
    """A cache of a context in which the first tokens of the one forward take the place of older ones."""

    def __init__(self, context: KV, rows: torch.Tensor) -> None:
        super().__init__()
        self._context = context
        self._rows = rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._context[layer_idx]
        return self._placed(keys, key_states), self._placed(values, value_states)

    def _placed(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        count = len(self._rows)
        return torch.cat([old.index_copy(2, self._rows, new[:, :, :count]), new[:, :, count:]], 2)
