"""Readings of a context by the frozen model: after full prefill, and over stitched KV made by a writer.

A reading is what the model says of a tail (a question and its answer) behind a context. Gradients of the second kind
reach the writer through the keys and values alone: the reader's weights are never changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.func import functional_call
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig, PreTrainedModel
from transformers.utils import logging

from bench.writer.capture import ROTATE, Capture, modules_with_rotation, padded
from ragkv.kv.layout import computed_in

KV = list[tuple[torch.Tensor, torch.Tensor]]
"""Rotated keys and values a layer, [1, kv_heads, tokens, head_dim] each."""
Weights = Mapping[str, torch.Tensor]
"""By name in the model without its head: stand in for the model's own."""

TOKENS_AT_ONCE = 640
"""Written in one forward. Enough to keep a processor busy; more would only take memory."""
LEAST_FILLED = 0.75
"""Length of a group's shortest chunk as a share of its longest: the rest is padding."""


def load_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The causal language model in a folder, to read with: on the GPU if there is one, in evaluation mode, and in the
    dtype that the machine computes `dtype` in."""
    logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=computed_in(dtype)).to(device).eval()


@dataclass(frozen=True, slots=True)
class Tail:
    """Token ids behind a context: a question as prompts hold it, and an answer to it, empty until there is one."""

    question_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """logprobs: [answer tokens, vocabulary] float32, of each answer token given those before it. hidden: [layers, tail
    tokens, hidden] float32, each layer's output, normalised to a root mean square of 1."""

    logprobs: torch.Tensor
    hidden: torch.Tensor


class Writing(Protocol):
    """The model with its writer: `disabled()` switches the writer off for the block."""

    def disabled(self) -> AbstractContextManager[Any]: ...


class Reader:
    """Readings by one causal language model, whose writer is switched off while it reads, behind the prefix that every
    text runs behind."""

    def __init__(self, model: PreTrainedModel, writing: Writing, prefix_ids: Sequence[int]) -> None:
        self._model = model
        self._writing = writing
        self._trunk = model.base_model  # without the head: KV needs no logits
        self._capture = Capture(model)
        self._rotation = getattr(modules_with_rotation(model)[0], ROTATE)
        self._positions = next(m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding"))
        self._device = model.device
        self._ends = model.generation_config.eos_token_id
        self.num_prefix = len(prefix_ids)
        self._prefix = self._behind(DynamicCache(), prefix_ids)

    @torch.no_grad()
    def full(self, context_ids: Sequence[int], tails: Sequence[Tail]) -> list[Reading]:
        """Readings behind the prefix and the whole context, computed as one text."""
        return self.stitched(self.prefill(context_ids), tails)

    def prefill(self, context_ids: Sequence[int]) -> KV:
        """KV of the prefix and the whole context, computed as one text."""
        return self._behind(cache_of(self._prefix), context_ids)

    @torch.no_grad()
    def _behind(self, cache: DynamicCache, ids: Sequence[int]) -> KV:
        """KV of what the cache holds and of tokens behind it."""
        with self._writing.disabled():
            self._trunk(torch.tensor([ids], device=self._device), past_key_values=cache, use_cache=True)
        return [(layer.keys, layer.values) for layer in cache.layers]

    @torch.no_grad()
    def answered(self, context: KV, tails: Sequence[Tail], max_tokens: int) -> list[Tail]:
        """The tails, with the model's own greedy answer over the KV of prefix and context where there was none.

        An answer has 1 to `max_tokens` tokens, the end-of-sequence token included.
        """
        return [
            tail if tail.answer_ids else replace(tail, answer_ids=self._answer(context, tail.question_ids, max_tokens))
            for tail in tails
        ]

    def _answer(self, context: KV, question_ids: Sequence[int], max_tokens: int) -> tuple[int, ...]:
        num_context = context[0][0].shape[2]
        # The cache holds the context: the ids in its place are only counted.
        ids = torch.tensor([[*[0] * num_context, *question_ids]], device=self._device)
        with self._writing.disabled():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                past_key_values=cache_of(context),
                generation_config=GenerationConfig(max_new_tokens=max_tokens, eos_token_id=self._ends, pad_token_id=0),
            )
        return tuple(out[0, ids.shape[1] :].tolist())

    def stitched(self, context: KV, tails: Sequence[Tail]) -> list[Reading]:
        """Readings over the KV of prefix and chunks, `write`'s or another's, in one forward. Keeps gradients."""
        rows = [(*tail.question_ids, *tail.answer_ids) for tail in tails]
        with self._writing.disabled():
            out = self._model(
                padded(rows, self._device),
                past_key_values=cache_of(repeated(context, len(rows))),
                use_cache=True,
                output_hidden_states=True,
            )
        readings = []
        for index, (row, tail) in enumerate(zip(rows, tails, strict=True)):
            logits = out.logits[index, len(tail.question_ids) - 1 : len(row) - 1].float()
            hidden = torch.stack([layer[index, : len(row)].float() for layer in out.hidden_states[1:]])
            readings.append(Reading(logits.log_softmax(-1), torch.nn.functional.rms_norm(hidden, hidden.shape[-1:])))
        return readings

    def write(self, chunks: Sequence[Sequence[int]], weights: Weights | None = None) -> KV:
        """KV of the prefix and of each chunk, prefilled alone behind the prefix, and stitched one after the other.

        The writer is as the caller left it, or `weights`. The prefix's KV is always the plain model's. Keeps gradients.
        """
        starts = self.starts(chunks)
        written: dict[int, KV] = {}
        for group in grouped(chunks, TOKENS_AT_ONCE):
            pieces = self.write_at([starts[index] for index in group], [chunks[index] for index in group], weights)
            written.update(zip(group, pieces, strict=True))
        return self.stitch([written[index] for index in range(len(chunks))])

    def starts(self, chunks: Sequence[Sequence[int]]) -> list[int]:
        """Position of each chunk's first token where the chunks follow the prefix one after the other."""
        return list(accumulate(map(len, chunks[:-1]), initial=self.num_prefix))

    def write_at(self, starts: Sequence[int], chunks: Sequence[Sequence[int]], weights: Weights | None) -> list[KV]:
        """KV of each chunk as `write` makes it, its first token at that position, in one forward."""
        ids = padded(chunks, self._device)
        arguments = {"past_key_values": cache_of(repeated(self._prefix, len(ids))), "use_cache": True}
        with self._capture.recorded() as captured:
            if weights is None:
                self._trunk(ids, **arguments)
            else:
                with self._writing.disabled():
                    functional_call(self._trunk, dict(weights), (ids,), arguments)
        pieces = []
        for row, (start, chunk) in enumerate(zip(starts, chunks, strict=True)):
            positions = torch.arange(start, start + len(chunk), device=self._device)
            keys, values = (
                [layer[row : row + 1, :, : len(chunk)] for layer in kind] for kind in (captured.keys, captured.values)
            )
            pieces.append([(self._rotated(key, positions), value) for key, value in zip(keys, values, strict=True)])
        return pieces

    def stitch(self, pieces: Sequence[KV]) -> KV:
        """KV of the prefix and of chunks one after the other. Keeps gradients."""
        layers = zip(self._prefix, *pieces, strict=True)
        return [
            (torch.cat(keys, 2), torch.cat(values, 2))
            for keys, values in (zip(*layer, strict=True) for layer in layers)
        ]

    def _rotated(self, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Heads [1, heads, tokens, head_dim] rotated to their positions by the model's own functions."""
        cos, sin = self._positions(heads, positions[None])
        size = cos.shape[-1]
        _, rotated = self._rotation(heads[..., :size], heads[..., :size], cos, sin)
        return torch.cat((rotated, heads[..., size:]), -1)


def cache_of(kv: KV) -> DynamicCache:
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(kv):
        cache.update(keys, values, layer)
    return cache


def repeated(kv: KV, rows: int) -> KV:
    return [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in kv]


def distances(teacher: Sequence[Reading], student: Sequence[Reading]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The mean KL(teacher || student) over each tail's answer, and the mean squared distance of hidden states."""
    for full, stitched in zip(teacher, student, strict=True):
        yield mean_kl(full.logprobs, stitched.logprobs), (full.hidden - stitched.hidden).square().mean()


def mean_kl(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) of log probabilities [tokens, vocabulary], mean over the tokens."""
    return (teacher.exp() * (teacher - student)).sum(-1).mean()


def grouped(chunks: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
    """Indices of the chunks in groups of similar length: of at most `tokens`, padding included, or of one chunk."""
    group: list[int] = []
    for index in sorted(range(len(chunks)), key=lambda index: -len(chunks[index])):
        if group:
            longest = len(chunks[group[0]])
            if len(chunks[index]) < LEAST_FILLED * longest or (len(group) + 1) * longest > tokens:
                yield group
                group = []
        group.append(index)
    if group:
        yield group
